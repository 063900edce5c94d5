"""What counts as a difference, where it is, by how much, and which update it can change."""

from __future__ import annotations

import re
from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from small_training import Fault, Training, continuous, recovered

from chaos.diff.compare import Comparison, compare
from chaos.diff.differences import number
from chaos.diff.trace import StepRecord, Trace, TraceError

A = continuous(6)
NAN, INF = float("nan").hex(), float("inf").hex()


def changed(trace: Trace, step: int, **fields: Any) -> Trace:
    """One record with other fields."""
    return replace(trace, records=tuple(replace(r, **fields) if r.step == step else r for r in trace.records))


def record(step: int) -> StepRecord:
    return next(r for r in A.records if r.step == step)


def only(comparison: Comparison) -> tuple[int, str]:
    """Step and part of the one difference there is."""
    assert comparison.first is not None
    (difference,) = comparison.first.differences
    return comparison.first.step, difference.part


def test_a_trace_is_itself() -> None:
    comparison = compare(A, A)
    assert not comparison.differs
    assert (comparison.counted.records, comparison.counted.starts, comparison.counted.steps) == (6, 1, (1, 6))
    assert {"model", "optimizer", "rng.torch"} <= set(comparison.counted.parts)


@pytest.mark.parametrize(("fields", "part"), [
    ({"ids": (1, 2, 3, 4)}, "sample ids"), ({"lr": (0.5.hex(),)}, "learning rate"),
    ({"lr": (record(4).lr[0], 0.1.hex())}, "learning rate"), ({"loss": 2.0.hex()}, "loss"),
    ({"loss": NAN}, "loss"), ({"loss": INF}, "loss"), ({"gradient_norm": 1.0.hex()}, "gradient norm"),
    ({"gradient_norm": None}, "gradient norm"), ({"skipped": True}, "skipped"), ({"samples_seen": 3}, "samples seen"),
    ({"samples_seen": None}, "samples seen"), ({"state": {**record(4).state, "model": "0"}}, "model"),
    ({"state": {k: v for k, v in record(4).state.items() if k != "rng.numpy"}}, "rng.numpy"),
    ({"state": {**record(4).state, "new": "0"}}, "new"),
    ({"values": {**record(4).values, "model/w": (1.0.hex(), 2.0.hex())}}, "model/w"),
    ({"values": {**record(4).values, "model/w": (1.0.hex(),)}}, "model/w"),
    ({"values": {}}, None),
], ids=str)  # fmt: skip
def test_every_field_counts(fields: dict[str, Any], part: str | None) -> None:
    for a, b in ((A, changed(A, 4, **fields)), (changed(A, 4, **fields), A)):
        comparison = compare(a, b)
        assert comparison.first is not None
        assert (comparison.first.step, comparison.first.restored) == (4, False)
        assert part is None or only(comparison) == (4, part)


def test_other_ids_under_the_same_digest_and_other_digests_without_ids() -> None:
    digests = changed(A, 3, ids=None, ids_digest="x")
    assert only(compare(changed(A, 3, ids=None), digests)) == (3, "sample ids")
    assert not compare(changed(A, 3, ids=None), A).differs  # the digests agree


@pytest.mark.parametrize("field", ["loss", "gradient_norm"])
@pytest.mark.parametrize("text", [NAN, INF, (-float("inf")).hex()])
def test_a_number_that_is_not_finite_is_a_difference_on_both_sides_too(field: str, text: str) -> None:
    both = changed(A, 2, **{field: text})
    comparison = compare(both, both)
    assert only(comparison) == (2, field.replace("_", " "))
    assert comparison.first is not None
    assert not comparison.first.differences[0].finite


def test_what_a_scaler_skipped_on_both_sides_may_be_infinite() -> None:
    both = changed(A, 2, gradient_norm=INF, loss=NAN, skipped=True)
    assert not compare(both, both).differs
    one = changed(both, 2, skipped=False)
    assert {d.part for d in compare(both, one).divergences[0].differences} == {"loss", "gradient norm", "skipped"}


def test_what_both_skipped_must_still_be_the_same() -> None:
    a, b = (changed(A, 2, gradient_norm=text, skipped=True) for text in (INF, NAN))
    assert only(compare(a, b)) == (2, "gradient norm")
    (difference,) = compare(a, b).divergences[0].differences
    assert (difference.finite, difference.magnitude) == (False, None)


def test_nan_in_a_value_of_both_sides() -> None:
    both = changed(A, 2, values={"model/w": (NAN, 1.0.hex())})
    assert only(compare(both, both)) == (2, "model/w")


@given(x=st.floats(-1e6, 1e6), y=st.floats(-1e6, 1e6))
def test_how_large(x: float, y: float) -> None:
    comparison = compare(changed(A, 2, loss=x.hex()), changed(A, 2, loss=y.hex()))
    assert comparison.differs == (x.hex() != y.hex())
    if comparison.first is not None:
        (difference,) = comparison.first.differences
        assert difference.magnitude == abs(x - y)
        assert difference.relative == (abs(x - y) / max(abs(x), abs(y)) if x or y else 0.0)


def test_the_largest_of_several_values_and_ranks_is_shown() -> None:
    a, b = continuous(4, ranks=2), continuous(4, ranks=2)
    shifted = tuple(replace(r, loss=(number(r.loss, "") + (r.rank + 1) / 8).hex()) if r.step == 3 else r
                    for r in b.records)  # fmt: skip
    comparison = compare(a, replace(b, records=shifted))
    assert comparison.first is not None
    (difference,) = comparison.first.differences
    assert (difference.ranks, difference.part) == ((0, 1), "loss")
    assert difference.magnitude == pytest.approx(0.25)


def test_structure_is_a_difference() -> None:
    assert [d.part for d in compare(A, replace(A, ranks=2, rows=None, global_batch=8)).structure] == [
        "ranks", "global batch", "rows"
    ]  # fmt: skip
    assert [d.part for d in compare(A, continuous(7)).structure] == ["length"]


def test_every_attempt_counts_abandoned_ones_too() -> None:
    b = Training().train(5).restart(3).train(6).trace()
    assert not compare(A, b).differs
    odd = [replace(r, loss=9.0.hex()) if (r.attempt, r.step) == (0, 5) else r for r in b.records]
    comparison = compare(A, replace(b, records=tuple(odd)))
    assert [(d.attempt, d.step) for d in comparison.divergences] == [(0, 5)]


def test_what_a_restart_restored_counts_before_its_first_step() -> None:
    b = recovered(6, 3, 5)
    start = b.starts[-1]
    odd = replace(b, starts=(*b.starts[:-1], replace(start, state={**start.state, "rng.torch": "0"})))
    first = compare(A, odd).first
    assert first is not None
    assert (first.attempt, first.step, first.restored, first.changed_update) == (1, 3, True, None)


def test_inside_of_a_step_only_what_the_last_update_made_is_compared() -> None:
    b = recovered(6, 3, 5)
    start = b.starts[-1]
    moved = replace(start, microbatch=2, state={**start.state, "rng.torch": "0", "buffers": "1"})
    assert not compare(A, replace(b, starts=(*b.starts[:-1], moved))).differs
    lost = replace(moved, state={**moved.state, "optimizer": "0"})
    first = compare(A, replace(b, starts=(*b.starts[:-1], lost))).first
    assert first is not None
    assert first.parts == {"optimizer"}


def test_an_attempt_that_goes_on_from_a_differing_one_inherits_its_difference() -> None:
    training = Training().train(5).restart(3, Fault("drop-optimizer")).train(6).restart(5).train(8)
    comparison = compare(continuous(8), training.trace())
    assert [(d.attempt, d.step, d.inherited) for d in comparison.divergences] == [(1, 3, None), (2, 5, 1)]


def test_an_attempt_that_goes_back_before_the_difference_does_not() -> None:
    training = Training().train(5).restart(3, Fault("drop-optimizer")).train(6)
    training.past.update({3: Training().train(3).past[3]})
    training.restart(3, Fault("reseed", part="rng.numpy")).train(8)
    comparison = compare(continuous(8), training.trace())
    assert [(d.attempt, d.step, d.inherited) for d in comparison.divergences] == [(1, 3, None), (2, 3, None)]


def test_a_reference_that_does_not_repeat_itself_is_said_to() -> None:
    a = recovered(6, 3, 5, Fault("drop-optimizer"))
    comparison = compare(a, Training().train(5).trace())
    assert [(d.side, d.attempt) for d in comparison.divergences] == [("A", 1)]


@pytest.mark.parametrize(("part", "update"), [("optimizer", 4), ("rng.python", 5), ("scheduler", 5), ("buffers", 4)])
def test_the_earliest_update_that_it_can_change(part: str, update: int) -> None:
    """A generator when A next draws from it (here not in update 4), a scheduler after the update that steps it."""
    held = record(3).state["rng.python"]
    a = changed(A, 4, state={**record(4).state, "rng.python": held})
    b = recovered(6, 3, 3)
    start = replace(b.starts[-1], state={**b.starts[-1].state, part: "0"})
    b = changed(replace(b, starts=(b.starts[0], start)), 4, state={**record(4).state, "rng.python": held})
    first = compare(a, b).first
    assert first is not None
    assert (first.earliest_update, first.changed_update) == (update, None)


def test_what_is_on_one_side_only_is_said() -> None:
    resumed = replace(A, starts=(), records=A.records[3:])
    assert compare(A, resumed).not_compared == ("steps 1–3 are in A only",)
    assert "attempt 0 of B begins at step 0, of which A has no state" in compare(resumed, A).not_compared


@pytest.mark.parametrize("text", ["loss", "1.5", "", "0x1p99999"])
def test_a_float_that_is_none_is_an_error(text: str) -> None:
    with pytest.raises(TraceError, match=rf"loss: '{re.escape(text)}' is no float\.hex"):
        compare(A, changed(A, 2, loss=text))
