"""Each rule of the diagnosis by itself: one part or field is another, and the cause is named from its shape."""

from __future__ import annotations

import math
from dataclasses import replace

import pytest
from small_training import GENERATORS, continuous, recovered, without, without_starts

from chaos.diff.causes import Cause, Kind
from chaos.diff.compare import compare
from chaos.diff.diagnose import diagnose, diagnose_length
from chaos.diff.reference import Reference
from chaos.diff.trace import StepRecord, Trace

STEPS, RESTORED, KILLED = 9, 5, 7
MORE = {"scaler": "s", "gradients": "g", "sample_order": "o", "extra": "e"}


def causes(a: Trace, b: Trace) -> tuple[Cause, ...]:
    """Of the one finding that is expected."""
    first = compare(a, b).first
    assert first is not None
    (finding,) = diagnose(Reference.of(a), b, first)
    return finding.causes


def with_more(trace: Trace, more: dict[str, str]) -> Trace:
    """Further parts in every state: digests that change from step to step."""
    def state(held: dict[str, str], step: int) -> dict[str, str]:
        return {**held, **{part: f"{text}{step:015x}" for part, text in more.items()}}

    return replace(
        trace, starts=tuple(replace(s, state=state(dict(s.state), s.step)) for s in trace.starts),
        records=tuple(replace(r, state=state(dict(r.state), r.step)) for r in trace.records),
    )  # fmt: skip


def restored_with(part: str, of_step: int | None) -> tuple[Trace, Trace]:
    """A, and B whose restart holds that part as A had it after another step; None for as it never was."""
    a, b = (with_more(t, MORE) for t in (continuous(STEPS), recovered(STEPS, RESTORED, KILLED)))
    states = {0: a.starts[0].state, **{r.step: r.state for r in a.records}}
    digest = "f" * 16 if of_step is None else states[of_step][part]
    last = replace(b.starts[-1], state={**b.starts[-1].state, part: digest})
    return a, replace(b, starts=(*b.starts[:-1], last))


@pytest.mark.parametrize(("part", "of_step", "kind", "says"), [
    ("optimizer", 3, Kind.TWO_MOMENTS, "optimizer is exactly A's of step 3, the other parts are of step 5"),
    ("optimizer", None, Kind.HISTORY_LOST, "is not A's of step 5, nor that of any other step"),
    ("rng.numpy", 3, Kind.TWO_MOMENTS, "rng.numpy is exactly A's of step 3"),
    ("rng.numpy", None, Kind.RESEEDED, "its state is not A's of step 5, nor that of any other step"),
    ("scheduler", None, Kind.RATE_SHIFTED, "is not A's of step 5, nor that of any other step"),
    ("model", 0, Kind.PART_LOST, "is the untrained one"),
    ("model", 3, Kind.TWO_MOMENTS, "model is exactly A's of step 3"),
    ("model", None, Kind.OTHER_STATE, "is not A's of step 5"),
    ("buffers", 0, Kind.PART_LOST, "is a fresh one: it was not restored"),
    ("buffers", 3, Kind.TWO_MOMENTS, "buffers is exactly A's of step 3"),
    ("buffers", None, Kind.OTHER_STATE, "nor that of any other step"),
    ("scaler", 3, Kind.TWO_MOMENTS, "scaler is exactly A's of step 3"),
    ("scaler", 0, Kind.SCALER_LOST, "other updates will overflow and be skipped"),
    ("gradients", None, Kind.GRADIENTS_LOST, "the gradients of the microbatches before the restore are lost"),
    ("sample_order", None, Kind.WRONG_ORDER, "is not the order that A used"),
    ("extra", None, Kind.OTHER_STATE, "nor that of any other step"),
    ("progress", None, Kind.OTHER_STATE, "nor that of any other step"),
    ("progress", 3, Kind.CURSOR_BEHIND, "is A's of step 3: 8 samples behind"),
])  # fmt: skip
def test_what_was_restored(part: str, of_step: int | None, kind: Kind, says: str) -> None:
    found = causes(*restored_with(part, of_step))
    assert (found[0].kind, found[0].part) == (kind, part)
    assert says in found[0].text


def test_a_cursor_and_a_schedule_of_another_step_may_be_a_state_of_two_moments() -> None:
    for part in ("progress", "scheduler"):
        assert [cause.kind for cause in causes(*restored_with(part, 3))][1:] == [Kind.TWO_MOMENTS]


def test_a_whole_state_of_another_step_is_named_as_one() -> None:
    a, b = continuous(STEPS), recovered(STEPS, RESTORED, KILLED)
    last = replace(b.starts[-1], state=dict(a.records[2].state))
    (found,) = causes(a, replace(b, starts=(*b.starts[:-1], last)))
    assert found.kind is Kind.TWO_MOMENTS
    assert found.text.startswith("the whole state is exactly A's of step 3, taken for that of step 5")


@pytest.mark.parametrize(("part", "kinds"), [
    ("model/w", [Kind.ROUNDING]), ("optimizer/w/momentum", [Kind.ROUNDING, Kind.HISTORY_LOST]),
])  # fmt: skip
def test_values_that_differ_in_their_last_digits_are_rounding(part: str, kinds: list[Kind]) -> None:
    a, b = continuous(STEPS), recovered(STEPS, RESTORED, KILLED)
    start = b.starts[-1]
    values = {**start.values, part: tuple((float.fromhex(n) * (1 + 1e-9)).hex() for n in start.values[part])}
    state = {**start.state, part.partition("/")[0]: "f" * 16}
    found = causes(a, replace(b, starts=(*b.starts[:-1], replace(start, state=state, values=values))))
    assert [cause.kind for cause in found] == kinds
    assert f"{1e-9:.1e}" in found[0].text


def altered(step: int, **fields: object) -> tuple[Trace, Trace]:
    """A, and B whose record of that step, the first after nothing, is another one in these fields."""
    a = without_starts(with_more(continuous(STEPS), MORE))

    def other(record: StepRecord) -> StepRecord:
        state = {**record.state, **fields.get("state", {})}  # type: ignore[dict-item]
        return replace(record, **{**fields, "state": state}) if record.step == step else record

    return a, replace(a, records=tuple(map(other, a.records)))


def of(step: int, part: str) -> str:
    return with_more(continuous(STEPS), MORE).records[step - 1].state[part]


@pytest.mark.parametrize(("fields", "kinds", "says"), [
    ({"loss": math.nan.hex()}, [Kind.NOT_FINITE], "no comparison can hold beyond this"),
    ({"lr": ((1e-7).hex(),)}, [Kind.OTHER_RATE], "found nowhere near in A"),
    ({"state": {"scaler": "f"}}, [Kind.SCALER_LOST], "its state differs"),
    ({"skipped": True}, [Kind.SCALER_LOST], "the gradient scaler of update 4 is another one"),
    ({"state": {"rng.torch": of(6, "rng.torch")}}, [Kind.RESEEDED], "exactly as after A's update 6"),
    ({"state": {"rng.torch": "f"}}, [Kind.RESEEDED, Kind.OTHER_COMPUTATION], "was re-seeded before update 4"),
    ({"loss": (3.5).hex()}, [Kind.OTHER_COMPUTATION], "its loss is not"),
    ({"gradient_norm": (3.5).hex()}, [Kind.GRADIENTS_LOST], "gradients of some microbatches are lost"),
    ({"state": {"optimizer": "f"}}, [Kind.HISTORY_LOST], "its history (momentum, moments, counts) is lost"),
    ({"state": {"scheduler": of(6, "scheduler")}}, [Kind.RATE_SHIFTED], "the scheduler is A's 2 updates ahead"),
    ({"state": {"scheduler": "f"}}, [Kind.RATE_SHIFTED], "in a state that A never had"),
    ({"state": {"buffers": "f"}}, [Kind.OTHER_STATE], "only buffers differs"),
])  # fmt: skip
def test_the_first_update_that_differs(fields: dict[str, object], kinds: list[Kind], says: str) -> None:
    found = causes(*altered(4, **fields))
    assert [cause.kind for cause in found] == kinds
    assert says in found[0].text


def test_where_no_gradient_norm_is_recorded_lost_gradients_would_look_the_same() -> None:
    a, b = (without(trace, gradient_norm=None) for trace in altered(4, state={"model": "f"}))
    assert [cause.kind for cause in causes(a, b)] == [Kind.HISTORY_LOST, Kind.GRADIENTS_LOST]


def test_a_generator_that_moved_apart_and_a_rate_are_two_findings() -> None:
    a, b = altered(4, lr=((1e-7).hex(),), state={GENERATORS[0]: "f"})
    first = compare(a, b).first
    assert first is not None
    assert [f.likeliest.kind for f in diagnose(Reference.of(a), b, first)] == [Kind.OTHER_RATE, Kind.RESEEDED]


def test_of_the_same_length_nothing_is_said() -> None:
    a = continuous(STEPS)
    assert diagnose_length(Reference.of(a), a) is None
