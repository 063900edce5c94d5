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
from chaos.audit.steps import Collector, Finder, Steps, _packed, text

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
    assert done.rank.tolist() == [event.what.rank for event in events]
    assert done.samples_seen.tolist() == [event.what.samples_seen for event in events]
    assert done.t_ns.tolist() == [event.t_ns for event in events]
    assert done.n.tolist() == [event.n for event in events]
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


def simple(n: int, file: str = "a", **changes: Any) -> Event[StepDone]:
    known = {"rank": 0, "step": n, "loss": "", "lr": (), "gradient_norm": "", "state": {}, "samples_seen": 0, "ids": ""}
    return Event(file, n, 0, n, 0, StepDone(**{**known, "skipped": False, **changes}))


@pytest.mark.parametrize("block", [1, 2, 99])
def test_files_are_those_of_the_events_that_are_asked_for(block: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(steps_module, "_BLOCK", block)
    events = [simple(n, file) for file in ("b", "a", "c") for n in range(2)]
    done = Steps.of(events)
    for indices in ([0], [1], [2], [3], [4], [5], [1, 0], [5, 1], [3, 5], [0, 2, 4]):
        assert done.files(np.array(indices)) == sorted({events[i].file for i in indices})


_RATES = st.sampled_from([(), ("1",), ("2",), ("3",), ("1", "1"), ("1", "2"), ("2", "1")])


@settings(max_examples=50, deadline=None)
@given(st.lists(_RATES, max_size=5))
def test_two_of_the_rates_that_there_were(rates: list[tuple[str, ...]]) -> None:
    found = Steps.of([simple(n, lr=lr) for n, lr in enumerate(rates)]).rates()
    assert len(found) == min(2, len(set(rates)))
    assert found <= set(rates)


@pytest.mark.parametrize(
    "rates",
    [
        [("1",), ("2",)],
        [("1",), ("1",), ("2",)],
        [("2",), ("1",), ("1",)],
        [("1", "1"), ("1", "2")],
        [("1", "1"), ("2", "1")],
        [("1",), ("2",), ("1",)],
        [("1",), ("1", "1")],
    ],
)
def test_a_rate_that_changed_once_is_found_wherever_it_did(rates: list[tuple[str, ...]]) -> None:
    assert Steps.of([simple(n, lr=lr) for n, lr in enumerate(rates)]).rates() == set(rates)


def test_many_events_alike_are_kept_in_blocks_of_the_same_size() -> None:
    collector = Collector("a")
    for n in range(2 * 4096 + 1):
        collector.take((), 0, (n, *(b"0",) * 6, b"false", b"0.5", b"", b"", b""))
    assert [len(block.n) for block in collector.blocks()] == [4096, 4096, 1]


def test_events_of_another_kind_begin_a_block() -> None:
    kinds: list[dict[str, Any]] = [{}, {}, {"lr": ("1",)}, {"lr": ("2",)}, {"lr": ("2",), "state": {"model": "x"}}, {}]
    blocks = Steps.of([simple(n, **kind) for n, kind in enumerate(kinds)]).blocks
    assert [block.n.tolist() for block in blocks] == [[0, 1], [2, 3], [4], [5]]
    assert [(block.parts, len(block.lr), len(block.state)) for block in blocks] == [
        ((), 0, 0), ((), 1, 0), (("model",), 1, 1), ((), 0, 0)
    ]  # fmt: skip


@pytest.mark.parametrize(
    ("values", "as_bytes"),
    [
        (["a", "bc"], True),
        ([b"a", b"bc"], True),
        (["a", b"bc"], True),
        ([b"x" * 64], True),
        (["x" * 64, ""], True),
        (["x" * 65, "a"], False),
        ([b"x" * 65], False),
        (["a", "é"], False),
        ([b"a", "é"], False),
        (["n\0", "a"], False),
        ([b"n\0"], False),
    ],
)
def test_texts_are_kept_as_bytes_where_they_are_short_and_plain(values: list[bytes | str], as_bytes: bool) -> None:
    packed = _packed(values)
    assert packed.dtype.kind == ("S" if as_bytes else "O")
    assert [text(value) for value in packed] == [text(value) for value in values]


def test_there_is_no_event_behind_the_last() -> None:
    with pytest.raises(IndexError):
        Steps()[0]
    assert not Steps()
    assert Steps().by_rank == {}


@pytest.mark.parametrize("number", [1 << 62, -(1 << 62) - 1])
def test_numbers_beyond_a_column(number: int) -> None:
    with pytest.raises(FormatError, match="step is out of range"):
        Collector("a").add(Event("a", 0, 0, 0, None, StepDone(0, number, "", (), "", {}, 0, "", False)))


@pytest.mark.parametrize("number", [(1 << 62) - 1, -(1 << 62)])
def test_the_greatest_numbers_that_a_column_holds(number: int) -> None:
    (event,) = Steps.of([Event("a", 0, number, number, 0, StepDone(number, number, "", (), "", {}, number, "", False))])
    assert (event.t_ns, event.clock) == (number, number)
    assert (event.what.rank, event.what.step, event.what.samples_seen) == (number, number, number)
