"""Every planted fault is found at its first step and named by its cause; what would look alike is named too."""

from __future__ import annotations

from dataclasses import replace

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from small_training import (
    BATCH,
    GENERATORS,
    NONE,
    ROWS,
    Fault,
    Training,
    continuous,
    recovered,
    without,
    without_starts,
)

from chaos.diff.causes import Finding, Kind
from chaos.diff.compare import Comparison, compare
from chaos.diff.diagnose import diagnose, diagnose_length
from chaos.diff.parts import role_of
from chaos.diff.reference import Reference
from chaos.diff.trace import StepRecord, Trace

STEPS, RESTORED, KILLED = 12, 5, 7
SHOWN_IN_START = {
    Fault("drop-optimizer"): (Kind.HISTORY_LOST, "optimizer"),
    Fault("drop-scheduler"): (Kind.RATE_SHIFTED, "scheduler"),
    Fault("drop-buffers"): (Kind.PART_LOST, "buffers"),
    Fault("stale-scheduler", 2): (Kind.RATE_SHIFTED, "scheduler"),
    Fault("stale-model", 2): (Kind.TWO_MOMENTS, "model"),
    Fault("stale-model-optimizer", 2): (Kind.TWO_MOMENTS, "optimizer"),
    Fault("cursor", 6): (Kind.CURSOR_AHEAD, "progress"),
    Fault("cursor", -3): (Kind.CURSOR_BEHIND, "progress"),
    Fault("rounding"): (Kind.ROUNDING, "model"),
    **{Fault("reseed", part=part): (Kind.RESEEDED, part) for part in GENERATORS},
}
SHOWN_LATER = {
    Fault("drop-optimizer"): (Kind.HISTORY_LOST, "optimizer"),
    Fault("drop-scheduler"): (Kind.RATE_SHIFTED, "scheduler"),
    Fault("stale-scheduler", 2): (Kind.RATE_SHIFTED, "scheduler"),
    Fault("cursor", 6): (Kind.CURSOR_AHEAD, "sample ids"),
    Fault("cursor", -3): (Kind.CURSOR_BEHIND, "sample ids"),
    Fault("order"): (Kind.WRONG_ORDER, "sample ids"),
    Fault("gradients"): (Kind.GRADIENTS_LOST, "gradient norm"),
    Fault("rounding"): (Kind.ROUNDING, None),
    **{Fault("reseed", part=part): (Kind.RESEEDED, part) for part in GENERATORS},
}


def examined(a: Trace, b: Trace) -> tuple[Comparison, tuple[Finding, ...]]:
    comparison = compare(a, b)
    return comparison, () if comparison.first is None else diagnose(Reference.of(a), b, comparison.first)


@pytest.mark.parametrize("ranks", [1, 2])
@pytest.mark.parametrize("fault", SHOWN_IN_START, ids=str)
def test_a_fault_shows_in_what_was_restored(fault: Fault, ranks: int) -> None:
    comparison, findings = examined(
        continuous(STEPS, ranks=ranks), recovered(STEPS, RESTORED, KILLED, fault, ranks=ranks)
    )
    first = comparison.first
    assert first is not None
    assert (first.attempt, first.step, first.restored) == (1, RESTORED, True)
    assert [(f.likeliest.kind, f.likeliest.part) for f in findings] == [SHOWN_IN_START[fault]]
    assert first.changed_update == RESTORED + 1
    assert first.earliest_update == RESTORED + 1


@pytest.mark.parametrize("ranks", [1, 2])
@pytest.mark.parametrize("fault", SHOWN_LATER, ids=str)
def test_a_fault_shows_in_the_first_update_where_nothing_says_what_was_restored(fault: Fault, ranks: int) -> None:
    comparison, findings = examined(
        without_starts(continuous(STEPS, ranks=ranks)),
        without_starts(recovered(STEPS, RESTORED, KILLED, fault, ranks=ranks)),
    )
    first = comparison.first
    assert first is not None
    assert (first.attempt, first.step, first.restored) == (1, RESTORED + 1, False)
    assert (first.earliest_update, first.changed_update) == (RESTORED + 1, RESTORED + 1)
    kind, part = SHOWN_LATER[fault]
    assert findings[0].likeliest.kind is kind
    assert part is None or findings[0].likeliest.part == part
    assert len(findings) == 1


def oracle(a: Trace, b: Trace) -> int | None:
    """First update that was another one: other samples, rate, loss, gradient, parameters; by the plainest of loops."""
    mine = {(r.step, r.rank): done(r) for r in a.records}
    return min((r.step for r in b.records if done(r) != mine[r.step, r.rank]), default=None)


def done(record: StepRecord) -> tuple[object, ...]:
    return record.ids, record.lr, record.loss, record.gradient_norm, record.state["model"]


@pytest.mark.no_cover
@settings(max_examples=60, deadline=None)
@given(data=st.data(), seed=st.integers(0, 99), ranks=st.sampled_from([1, 2, 4]))
def test_any_single_fault_is_found_where_it_is_and_never_where_none_is(
    data: st.DataObject, seed: int, ranks: int
) -> None:
    restored = data.draw(st.integers(3, 8), "restored")
    killed = data.draw(st.integers(restored, 10), "killed")
    steps = data.draw(st.integers(killed + 1, 14), "steps")
    fault = data.draw(st.sampled_from([NONE, Fault("gradients"), Fault("order"), *SHOWN_IN_START]), "fault")
    a, b = continuous(steps, seed, ranks), recovered(steps, restored, killed, fault, seed, ranks)
    comparison, findings = examined(a, b)
    at, first = oracle(a, b), comparison.first
    if fault not in SHOWN_IN_START and at is None:  # no fault, or the first epoch's order within the first epoch
        assert fault.kind in ("none", "order")
        assert not comparison.differs
        return
    assert first is not None
    assert comparison.counted.records == len(b.records)
    assert len(comparison.divergences) == 1
    if fault in SHOWN_IN_START:
        assert (first.step, first.restored, first.changed_update) == (restored, True, at)
        assert SHOWN_IN_START[fault] in [(f.likeliest.kind, f.likeliest.part) for f in findings]
    else:
        assert (first.step, first.restored, first.changed_update) == (at, False, at)
        assert findings[0].likeliest.kind in (Kind.GRADIENTS_LOST, Kind.WRONG_ORDER)
        assert (findings[0].likeliest.kind is Kind.WRONG_ORDER) == (fault.kind == "order")


def test_without_the_gradients_norm_two_causes_look_alike_and_both_are_named() -> None:
    a = without(without_starts(continuous(STEPS)), gradient_norm=None)
    for fault in (Fault("drop-optimizer"), Fault("gradients")):
        b = without(without_starts(recovered(STEPS, RESTORED, KILLED, fault)), gradient_norm=None)
        _, findings = examined(a, b)
        assert {cause.kind for cause in findings[0].causes} == {Kind.HISTORY_LOST, Kind.GRADIENTS_LOST}


def test_a_cursor_that_is_off_by_whole_epochs_may_be_another_epochs_order() -> None:
    a, b = continuous(12), recovered(12, 7, 8, Fault("cursor", -ROWS))
    _, findings = examined(without_starts(a), without_starts(b))
    assert [cause.kind for cause in findings[0].causes] == [Kind.WRONG_ORDER, Kind.CURSOR_BEHIND]
    assert "epoch 2 is read in the order of epoch 1" in findings[0].causes[0].text


def test_a_cursor_of_an_earlier_step_is_also_a_state_of_two_moments() -> None:
    """Reference E: parameters of one update with the cursor of another."""
    training = Training().train(8)
    for rank in training.past[8]:
        rank.cursor = 6 * BATCH
        rank.step = 6
    b = training.restart(8).trace()
    start = replace(b.starts[-1], step=8)
    _, findings = examined(continuous(8), replace(b, starts=(*b.starts[:-1], start)))
    assert [cause.kind for cause in findings[0].causes] == [Kind.CURSOR_BEHIND, Kind.TWO_MOMENTS]


def test_the_samples_alone_tell_the_cursor_where_only_their_digests_are_known() -> None:
    fault = Fault("cursor", -2 * BATCH)
    a, b = (without(without_starts(t), ids=None) for t in (continuous(14), recovered(14, 5, 7, fault)))
    _, findings = examined(a, b)
    assert findings[0].likeliest.kind is Kind.CURSOR_BEHIND
    assert f"behind by {2 * BATCH} samples (2 whole updates)" in findings[0].likeliest.text


def test_the_wrong_order_within_an_epoch_is_no_cursor() -> None:
    a = continuous(6)
    swapped = {4: a.records[5].ids, 5: a.records[4].ids, 6: a.records[3].ids}  # the updates of the second epoch
    b = replace(a, records=tuple(replace(r, ids=swapped.get(r.step, r.ids)) for r in a.records))
    _, findings = examined(a, b)
    assert [cause.kind for cause in findings[0].causes] == [Kind.WRONG_ORDER]
    assert f"the {ROWS} samples that are left of the epoch are A's, in another order" in findings[0].likeliest.text


def test_only_the_last_microbatches_of_an_update() -> None:
    a = continuous(6)
    b = replace(a, records=tuple(replace(r, ids=r.ids[2:]) if r.step == 4 and r.ids else r for r in a.records))
    _, findings = examined(a, b)
    assert findings[0].likeliest.kind is Kind.GRADIENTS_LOST
    assert "consumed only the last 2 of 4 samples" in findings[0].likeliest.text


@pytest.mark.parametrize(("steps", "target", "kind"), [
    (15, 15, Kind.TARGET_MISREAD),  # from 5, for 10 more, though 10 was where to end
    (12, 12, Kind.OTHER_TARGET), (8, 10, Kind.UNFINISHED),
])  # fmt: skip
def test_another_end(steps: int, target: int, kind: Kind) -> None:
    a = continuous(10)
    b = Training().train(5).restart(5).train(steps).trace(target=target)
    comparison = compare(a, b)
    assert comparison.differs
    assert comparison.divergences == ()
    finding = diagnose_length(Reference.of(a), b)
    assert finding is not None
    assert finding.likeliest.kind is kind


def test_additional_steps_read_as_a_cumulative_target() -> None:
    b = Training().train(5).restart(5).trace(target=5)
    finding = diagnose_length(Reference.of(continuous(10)), b)
    assert finding is not None
    assert (finding.likeliest.kind, "read as a cumulative" in finding.likeliest.text) == (Kind.TARGET_MISREAD, True)


def test_another_seed_is_no_fault_of_a_restore() -> None:
    comparison, findings = examined(continuous(6), continuous(6, seed=8))
    assert comparison.first is not None
    assert (comparison.first.step, comparison.first.restored) == (0, True)
    assert [f.likeliest.kind for f in findings] == [Kind.OTHER_START]
    assert "another seed" in findings[0].likeliest.text


def test_one_ranks_generator_given_to_another() -> None:
    training = Training(ranks=2).train(5)
    b = training.restart(5)
    b.ranks[1].generators["rng.torch"] = b.ranks[0].generators["rng.torch"]
    digest = b.ranks[0].digests()["rng.torch"]
    trace = b.trace()
    start = replace(trace.starts[-1], state={**trace.starts[-1].state, "rng.torch": digest})
    _, findings = examined(continuous(5, ranks=2), replace(trace, starts=(*trace.starts[:-1], start)))
    assert "of rank 1 has exactly the state of rank 0's" in findings[0].likeliest.text


def test_several_things_that_went_wrong_are_each_named() -> None:
    training = Training().train(7).restart(5, Fault("drop-optimizer"))
    training.ranks[0].plant(Fault("reseed", part="rng.numpy"), {})
    training.starts.pop()
    training._begin("s00000005")
    _, findings = examined(continuous(7), training.train(7).trace())
    assert [(f.likeliest.kind, f.likeliest.part) for f in findings] == [
        (Kind.HISTORY_LOST, "optimizer"), (Kind.RESEEDED, "rng.numpy")
    ]  # fmt: skip


def test_every_role_of_the_simulation_is_known() -> None:
    assert {part: role_of(part).value for part in continuous(1).records[0].state} == {
        "model": "model", "optimizer": "optimizer", "buffers": "buffers", "scheduler": "scheduler",
        "progress": "cursor", **dict.fromkeys(GENERATORS, "generator"),
    }  # fmt: skip
