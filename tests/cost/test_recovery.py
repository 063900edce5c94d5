"""Recoveries cut into parts, and what they did again, from a history whose every length is known."""

from __future__ import annotations

from dataclasses import asdict, replace

import cost_kit as kit
import pytest
from cost_kit import Kill, Simulated

from chaos.cost.measure import costs_of
from chaos.cost.predict import Setting, exact, met
from chaos.cost.records import (
    Chosen,
    Detected,
    Finished,
    Joined,
    Preparing,
    Previous,
    Proposed,
    Restored,
    Resumed,
    Seen,
    Shape,
    StepDone,
    Struck,
    Witnessed,
)
from chaos.cost.shares import covered, shared_out
from chaos.cost.values import Recovery


def recovered(simulated: Simulated, *kills: Kill) -> tuple[Recovery, ...]:
    return costs_of(simulated.run(list(kills))).recoveries


def test_each_part_has_its_length_and_a_gap_is_unexplained() -> None:
    (one,) = recovered(Simulated(every=5, steps=12), Kill(8, 2))
    assert one.parts is not None
    gap = kit.GAP / 1e3  # a rank's answer on its way, and the order to restore; between joining and loading: nobody's
    assert asdict(one.parts) == pytest.approx({
        "detect_s": 0.020, "fence_s": 0.030, "reacquire_s": 0.012, "join_s": 0.015, "select_s": 0.007 + gap + 0.009,
        "load_s": 0.040 + gap + 0.050, "pipeline_s": 0.003 + 0.006, "first_step_s": 0.100 - 0.006,
    })  # fmt: skip
    assert one.unexplained_s == pytest.approx(gap)
    assert one.whole_s == pytest.approx(sum(asdict(one.parts).values()) + one.unexplained_s)


def test_while_one_rank_still_joins_the_recovery_is_joining() -> None:
    (one,) = recovered(Simulated(every=5, steps=12, lag_ms=11), Kill(8, 2))
    assert one.parts is not None
    # The last rank begins 11 ms later to join, and to load; the first one's loading beside it counts for nothing.
    assert one.parts.reacquire_s == pytest.approx(0.012 + 0.011)
    assert one.parts.join_s == pytest.approx(0.015 + 0.011)
    assert one.whole_s == pytest.approx(sum(asdict(one.parts).values()) + (one.unexplained_s or 0.0))


def test_what_was_lost_and_when_it_was_caught_up() -> None:
    (one,) = recovered(Simulated(every=5, steps=12), Kill(8, 2))
    assert (one.restored_step, one.redo_steps, one.redo_samples) == (5, 3, 48)
    assert (one.partial_microbatches, one.redo_microbatches) == (2, 14)
    assert one.lost_s == pytest.approx((3 * kit.STEP + kit.STALL + kit.STEP / 2) / 1e3)
    assert one.redo_s == pytest.approx(3 * kit.STEP / 1e3)
    assert one.downtime_s == pytest.approx((one.whole_s or 0.0) - kit.STEP / 1e3)
    assert one.caught_up_s == pytest.approx((one.downtime_s or 0.0) + 3 * kit.STEP / 1e3)
    assert (one.bytes_read, one.standby, one.uncertainty_s) == (2000, "warm", 0.0)


def test_the_same_checkpoint_again_is_lost_from_where_the_attempt_began() -> None:
    _, again = recovered(Simulated(every=5, steps=12), Kill(8, 2), Kill(7, 4))
    assert (again.restored_step, again.redo_steps) == (5, 2)
    assert again.lost_s == pytest.approx(3 * kit.STEP / 1e3)


def test_an_attempt_that_finished_nothing_lost_only_its_own_time() -> None:
    _, again = recovered(Simulated(every=5, steps=12), Kill(8, 2), Kill(5, 2))
    assert (again.redo_steps, again.partial_microbatches) == (3, None)  # what attempt 0 had done is still to be redone
    assert again.lost_s == pytest.approx(kit.STEP / 2 / 1e3)


def test_from_nothing_nothing_is_read() -> None:
    (one,) = recovered(Simulated(every=5, steps=12), Kill(3, 1))
    assert (one.restored_step, one.redo_steps, one.bytes_read) == (0, 3, 0)
    assert one.parts is not None
    assert one.parts.load_s == pytest.approx(kit.GAP / 1e3 + 0.050)


def test_a_standby_is_warm_or_not_when_it_is_needed() -> None:
    kills = (Kill(6, 1), Kill(7, 1), Kill(9, 1), Kill(5, 1))
    found = recovered(Simulated(every=5, steps=12, warm_ms=250), *kills)
    # The second one is started after step 6 and 125 ms old; the third is warm; the fourth is started when needed.
    assert [each.standby for each in found] == ["warm", "warming", "warm", "none"]


@pytest.mark.parametrize("kind", [Preparing, Joined, Proposed, Detected])
def test_without_an_instant_nothing_is_made_up(kind: type) -> None:
    whole = Simulated(every=5, steps=12).run([Kill(8, 2)])
    cut = Witnessed(tuple(event for event in whole.events if not isinstance(event.what, kind)), whole.strikes)
    (one,) = costs_of(cut).recoveries
    if kind is Detected:
        assert (one.parts, one.whole_s, one.lost_s) == (None, None, None)
    else:
        assert one.unexplained_s is None or one.unexplained_s > kit.GAP / 1e3


def without(witnessed: Witnessed, *kinds: type, file: str = "", attempt: int | None = None) -> Witnessed:
    """What a history that lost these events still tells."""
    return Witnessed(tuple(
        event for event in witnessed.events
        if not (isinstance(event.what, kinds) and file in event.file and attempt in (None, event.attempt))
    ), witnessed.strikes)  # fmt: skip


def test_a_run_of_unknown_shape_has_no_recoveries() -> None:
    whole = Simulated(every=5, steps=12).run([Kill(8, 2)])
    found = costs_of(without(whole, Shape))
    assert (found.recoveries, found.saves) == ((), ())


def test_a_search_that_is_not_recorded_leaves_what_lies_before_it_open() -> None:
    whole = Simulated(every=5, steps=12).run([Kill(8, 2)])
    (one,) = costs_of(without(whole, Proposed, attempt=1)).recoveries
    assert one.parts is not None
    assert (one.parts.reacquire_s, one.parts.select_s) == (0.0, pytest.approx(kit.GAP / 1e3 + 0.009))
    assert one.unexplained_s == pytest.approx((kit.GAP + kit.ACQUIRE + kit.PROPOSE) / 1e3)


def test_a_rank_without_a_record_of_its_restore_or_first_step_is_timed_by_the_others() -> None:
    simulated = Simulated(every=5, steps=12, lag_ms=11)
    whole, file = simulated.run([Kill(8, 2)]), simulated.file(0)
    (all_there,) = costs_of(whole).recoveries
    for kind in (Restored, StepDone):
        (one,) = costs_of(without(whole, kind, file=file, attempt=1)).recoveries
        assert one.parts is not None
        assert all_there.parts is not None
        assert one.parts.load_s <= all_there.parts.load_s
        assert one.parts.first_step_s == all_there.parts.first_step_s
        assert one.whole_s == all_there.whole_s


def test_where_nothing_was_chosen_nothing_is_said_to_be_lost() -> None:
    whole = Simulated(every=5, steps=12).run([Kill(8, 2)])
    (one,) = costs_of(without(whole, Chosen, attempt=1)).recoveries
    assert (one.restored_step, one.lost_s, one.redo_steps, one.redo_samples) == (None, None, None, None)
    assert one.redo_s == pytest.approx(3 * kit.STEP / 1e3)  # until the step that had been reached, wherever it began


def test_a_supervisor_that_is_struck_is_missed_by_the_next_one() -> None:
    """The strike at it is the one that counts, and the time until its successor takes the run up."""
    simulated = Simulated(every=5, steps=12)
    whole = simulated.run([Kill(8, 2)])
    detected = next(event for event in whole.events if isinstance(event.what, Detected))
    successor = "supervisor-h-9-1.jsonl"
    (of_rank,) = whole.strikes
    strike = Struck(0, "supervisor", None, "supervisor.training", 1, 1, 1, kit.BOOT, of_rank.t_ns)
    events = tuple(
        replace(event, what=Resumed((Previous(1, 1),)), file=successor) if event is detected
        else replace(event, file=successor) if event.file == kit.SUPERVISOR and event.attempt == 1 else event
        for event in whole.events
    )  # fmt: skip
    (one,) = costs_of(Witnessed(events, (strike,))).recoveries
    (other,) = costs_of(whole).recoveries
    assert one.parts == other.parts
    assert (one.restored_step, one.redo_steps, one.partial_microbatches) == (5, 3, None)
    (nobody,) = costs_of(Witnessed(events, (replace(strike, pid=2),))).recoveries
    assert (nobody.whole_s, nobody.parts) == (None, None)


@pytest.mark.no_cover
@pytest.mark.parametrize("every", [1, 2, 3, 5, 8])
def test_the_prediction_is_what_is_measured_for_every_passage(every: int) -> None:
    setting, count = Setting(every, 20, 2, 4, 16), 0
    for finished in range(every, 19):
        for published in (True, False):
            if not published and finished < 2 * every:
                continue
            for partial in (1, 3, 4):
                (one,) = recovered(Simulated(every, 20), Kill(finished, partial, published, rank=finished % 2))
                expected = exact(setting, finished, partial, published)
                assert met(expected, one), (finished, partial, published, expected, one)
                assert expected.exact
                count += 1
    assert count > 40


@pytest.mark.parametrize("field", ["restored_step", "redo_steps", "redo_samples", "redo_microbatches"])
def test_one_off_is_a_miss(field: str) -> None:
    (one,) = recovered(Simulated(5, 20), Kill(8, 2))
    expected = exact(Setting(5, 20, 2, 4, 16), 8, 2, published=True)
    assert met(expected, one)
    assert not met(expected, replace(one, **{field: getattr(one, field) + 1}))
    assert not met(expected, replace(one, **{field: None}))


def test_several_kills_of_one_run_each_have_their_own_recovery() -> None:
    kills = [Kill(8, 1), Kill(13, 2, published=False), Kill(14, 4)]
    found = recovered(Simulated(5, 20), *kills)
    assert [each.restored_step for each in found] == [5, 5, 10]
    assert [each.redo_steps for each in found] == [3, 8, 4]
    assert [each.attempt for each in found] == [1, 2, 3]


def test_a_rank_of_another_host_is_placed_by_messages() -> None:
    simulated, behind = Simulated(every=5, steps=12), 7_000_000 * kit.MS
    simulated.boots[simulated.file(1)] = ("boot-b", behind)
    (other,) = recovered(simulated, Kill(8, 2))
    (same,) = recovered(Simulated(every=5, steps=12), Kill(8, 2))
    assert other.uncertainty_s > 0
    assert other.whole_s is not None
    assert same.whole_s is not None
    assert abs(other.whole_s - same.whole_s) <= other.uncertainty_s
    assert (other.redo_steps, other.restored_step) == (same.redo_steps, same.restored_step)


def test_a_host_that_cannot_be_placed_leaves_durations_open() -> None:
    simulated = Simulated(every=5, steps=12)
    simulated.boots[simulated.file(0)] = ("boot-b", 5 * kit.MS)
    whole = simulated.run([Kill(8, 2)])

    def answers(event: Seen) -> bool:
        return event.boot == "boot-b" and type(event.what).__name__ in ("Joined", "StepDone")

    one_way = Witnessed(tuple(event for event in whole.events if not answers(event)), whole.strikes)
    (one,) = costs_of(one_way).recoveries
    assert (one.whole_s, one.lost_s, one.parts) == (None, None, None)


def test_a_host_that_cannot_be_placed_counts_for_nothing_in_a_recovery_of_another() -> None:
    simulated = Simulated(every=5, steps=12)
    simulated.boots[simulated.file(1)] = ("boot-b", 5 * kit.MS)
    whole = without(simulated.run([Kill(8, 2)]), Finished)
    one_way = Witnessed(tuple(e for e in whole.events if e.boot != "boot-b" or not isinstance(e.what, Joined)),
                        whole.strikes)  # fmt: skip
    (one,) = costs_of(one_way).recoveries
    (same,) = recovered(Simulated(every=5, steps=12), Kill(8, 2))
    assert one.parts is not None
    assert same.parts is not None
    assert one.parts.first_step_s == same.parts.first_step_s
    assert (one.whole_s, one.downtime_s) == (same.whole_s, None)  # when the other began its first step is not known


def test_an_instant_belongs_to_one_kind_only() -> None:
    assert shared_out([(1, 0.0, 10.0), (0, 4.0, 6.0), (2, 8.0, 20.0)], (2.0, 15.0)) == {0: 2.0, 1: 6.0, 2: 5.0}
    assert shared_out([(0, 0.0, 1.0)], (5.0, 9.0)) == {}
    assert covered([(0.0, 2.0), (1.0, 3.0), (5.0, 6.0)], (0.5, 5.5)) == 3.0
