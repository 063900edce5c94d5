"""Steps in columns beside the same steps as events."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from chaos.audit import steps as steps_module
from chaos.audit.events import Event, StepDone
from chaos.audit.formats import FormatError
from chaos.audit.steps import Collector, Finder, Steps

_TEXTS = st.sampled_from(["", "a", "0x1p+0", "é", "x" * 70, "n\0", "\0", "\ud800"])


@st.composite
def recorded(draw: st.DrawFn) -> list[Event[StepDone]]:
    """Events of two files, of any attempts, ranks and kinds."""
    found = []
    for file in ("a", "b"):
        for n in range(draw(st.integers(0, 8))):
            parts = draw(st.sampled_from([(), ("model",), ("model", "best")]))
            rates = draw(st.sampled_from([(), ("1",), ("1", "é")]))
            done = StepDone(draw(st.integers(0, 1)), draw(st.integers(0, 5)), draw(_TEXTS), rates, draw(_TEXTS),
                            {part: draw(_TEXTS) for part in parts}, n, draw(_TEXTS), draw(st.booleans()))  # fmt: skip
            attempt = draw(st.sampled_from([None, 0, 1]))
            found.append(Event(file, n, draw(st.integers(0, 1 << 60)), n, attempt, done))
    return found


@settings(max_examples=60, deadline=None)
@given(recorded(), st.integers(1, 5))
def test_columns_hold_what_the_events_do(events: list[Event[StepDone]], block: int) -> None:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(steps_module, "_BLOCK", block)
        done = Steps.of(events)
    assert list(done) == [done[i] for i in range(len(done))] == events
    assert done[-3:] == events[-3:]
    assert done.step.tolist() == [event.what.step for event in events]
    assert done.skipped.tolist() == [event.what.skipped for event in events]
    everything = np.arange(len(events))
    assert done.texts("loss", everything[::-1]) == [event.what.loss for event in events[::-1]]
    assert done.files(everything) == sorted({event.file for event in events})
    groups: dict[Any, list[int]] = {}
    for i, event in enumerate(events):
        groups.setdefault((event.attempt, event.what.rank), []).append(i)
    assert {who: own.tolist() for who, own in done.by_rank.items()} == groups
    rates = {event.what.lr for event in events}
    assert len(done.rates()) == min(2, len(rates))
    assert done.rates() <= rates


@settings(max_examples=60, deadline=None)
@given(st.lists(st.integers(0, 9), max_size=12), st.integers(-1, 10))
def test_the_last_of_one_number_counts_and_a_gap_ends_the_row(numbers: list[int], start: int) -> None:
    done = Steps.of([Event("a", n, 0, n, 0, StepDone(0, step, "", (), "", {}, 0, "", False))
                     for n, step in enumerate(numbers)])  # fmt: skip
    last = {step: n for n, step in enumerate(numbers)}
    finder = Finder(done, np.arange(len(numbers)))
    assert [finder.index(step) for step in range(11)] == [last.get(step) for step in range(11)]
    row = []
    while start + 1 + len(row) in last:
        row.append(last[start + 1 + len(row)])
    assert finder.after(start).tolist() == row


def test_there_is_no_event_behind_the_last() -> None:
    with pytest.raises(IndexError):
        Steps()[0]
    assert not Steps()
    assert Steps().by_rank == {}


@pytest.mark.parametrize("number", [1 << 62, -(1 << 62) - 1])
def test_numbers_beyond_a_column(number: int) -> None:
    with pytest.raises(FormatError, match="step is out of range"):
        Collector("a").add(Event("a", 0, 0, 0, None, StepDone(0, number, "", (), "", {}, 0, "", False)))
