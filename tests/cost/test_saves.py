"""What saves cost, and steps beside them, from a history whose every length is known."""

from __future__ import annotations

from dataclasses import replace

import cost_kit as kit
import pytest
from cost_kit import Kill, Simulated

from chaos.cost.measure import costs_of
from chaos.cost.records import SaveStaged, SaveWritten, StepDone, Witnessed


def test_a_save_is_as_slow_as_its_slowest_rank() -> None:
    whole = Simulated(every=5, steps=11).run([])
    events = tuple(
        replace(event, what=replace(event.what, stall_s=0.009, waited_s=0.2))
        if isinstance(event.what, SaveStaged) and (event.what.rank, event.what.step) == (1, 10) else event
        for event in whole.events
    )  # fmt: skip
    first, second, last = costs_of(Witnessed(events)).saves
    assert [(each.step, each.stall_s, each.wait_s) for each in (first, second, last)] == [
        (5, 0.004, 0.0), (10, 0.009, 0.2), (11, 0.004, 0.0),
    ]  # fmt: skip
    assert (first.bytes, first.write_s, first.microbatch, first.attempt) == (1000, 0.03, 0, 0)
    assert first.background_s == pytest.approx(kit.BACKGROUND / 1e3)


def test_a_save_that_was_never_published_has_no_end() -> None:
    found = costs_of(Simulated(every=5, steps=20).run([Kill(11, 1, published=False)])).saves
    assert [(each.attempt, each.step, each.background_s is None) for each in found] == [
        (0, 5, False), (0, 10, True), (1, 10, False), (1, 15, False), (1, 20, False),
    ]  # fmt: skip
    assert found[1].bytes is None


def test_a_steps_time_is_without_the_save_before_it_and_says_how_much_of_it_one_was_in_flight() -> None:
    found = [step for step in costs_of(Simulated(every=3, steps=7).run([])).steps if step.rank == 0]
    assert [step.step for step in found] == [2, 3, 4, 5, 6, 7]  # the first one follows none
    assert [step.duration_s for step in found] == pytest.approx([kit.STEP / 1e3] * 6)
    assert [step.in_flight for step in found] == pytest.approx([0, 0, 0.4, 0, 0, 0.4])
    assert not any(step.recovering for step in found)


def test_steps_beside_a_standby_that_is_being_started_say_so() -> None:
    found = costs_of(Simulated(every=5, steps=12, warm_ms=150).run([Kill(6, 1)])).steps
    # Attempt 1 begins after step 5; the new standby comes up with the end of step 6 and is warm during step 8.
    beside = [(step.attempt, step.step) for step in found if step.recovering and step.rank == 0]
    assert beside == [(1, 7), (1, 8)]


def test_a_save_in_flight_to_the_end_is_in_flight_all_along() -> None:
    found = costs_of(Simulated(every=5, steps=20).run([Kill(13, 1, published=False)])).steps
    assert [step.in_flight for step in found if (step.attempt, step.rank) == (0, 1)][-3:] == pytest.approx([1, 1, 1])


def test_what_is_of_no_attempt_is_of_no_save_and_no_step() -> None:
    whole = Simulated(every=5, steps=11).run([])
    stray = tuple(replace(event, attempt=None) for event in whole.events
                  if isinstance(event.what, (SaveStaged, SaveWritten, StepDone)))  # fmt: skip
    found, expected = costs_of(Witnessed((*whole.events, *stray))), costs_of(whole)
    assert (found.saves, found.steps) == (expected.saves, expected.steps)


def test_a_save_that_a_rank_did_not_stage_is_none() -> None:
    whole = Simulated(every=5, steps=11).run([])
    lost = next(e for e in whole.events if isinstance(e.what, SaveStaged) and (e.what.rank, e.what.step) == (1, 10))
    found = costs_of(Witnessed(tuple(event for event in whole.events if event is not lost)))
    assert [each.step for each in found.saves] == [5, 11]
