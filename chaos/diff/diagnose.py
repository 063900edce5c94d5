"""A divergence → the likeliest cause, from the shape of the difference; causes that would look alike are all named.

Pure. What was restored is looked at first, then the first update that differs: its samples, rate, loss, gradient and
state in the order in which a step makes them, so that no consequence is taken for a cause.
"""

from __future__ import annotations

from chaos.diff.causes import Case, Cause, Finding, Kind, ranks_text
from chaos.diff.causes_restored import restored_findings, shift_text
from chaos.diff.compare import Divergence
from chaos.diff.differences import Difference
from chaos.diff.parts import Role, generator_name, role_of
from chaos.diff.reference import Reference, last_step
from chaos.diff.sample_causes import sample_findings
from chaos.diff.trace import Trace

_DISCRETE = frozenset({Role.SAMPLES, Role.SKIPPED, Role.GENERATOR, Role.ORDER, Role.SCALER, Role.SEEN})


def diagnose(reference: Reference, trace: Trace, divergence: Divergence) -> tuple[Finding, ...]:
    """What went wrong in this attempt of `trace`, most important first."""
    case = Case(reference, trace, divergence)
    wild = next((d for d in divergence.differences if not d.finite), None)
    if wild is not None:
        text = f"{wild.part} of update {case.step} is {wild.detail}: no comparison can hold beyond this"
        return (Finding((Cause(Kind.NOT_FINITE, wild.part, text),)),)
    return restored_findings(case) if divergence.restored else _update_findings(case)


def diagnose_length(reference: Reference, b: Trace) -> Finding | None:
    """Why B ends at another step than A; None if it does not."""
    ended, other = reference.last_step, last_step(b)
    if ended == other:
        return None
    begun = max((start.step for start in b.starts), default=0)
    asked = reference.trace.target_step or ended
    if begun and other - begun == asked:
        text = (f"B went on from step {begun} for {asked} updates, to step {other}: the cumulative target {asked} was "
                "read as additional steps")
        return Finding((Cause(Kind.TARGET_MISREAD, "length", text),))
    if begun and b.target_step is not None and b.target_step == ended - begun:
        text = (f"B was to do {b.target_step} updates after step {begun} and took that for the step to end at: "
                "additional steps were read as a cumulative target")
        return Finding((Cause(Kind.TARGET_MISREAD, "length", text),))
    shorter, trace, end = ("B", b, other) if other < ended else ("A", reference.trace, ended)
    if trace.target_step is not None and end < trace.target_step:
        text = f"{shorter} stopped at step {end} of {trace.target_step}: it did not finish"
        return Finding((Cause(Kind.UNFINISHED, "length", text),))
    text = f"A was to end at step {ended}, B at step {other}: another target"
    return Finding((Cause(Kind.OTHER_TARGET, "length", text),))


def _update_findings(case: Case) -> tuple[Finding, ...]:
    """The first rule that applies names the cause; a generator that moved apart is a cause of its own."""
    found = {role_of(d.part) for d in case.divergence.differences}
    generators = [Finding(tuple(_generator(case, d))) for d in case.of_role(Role.GENERATOR)]
    if Role.SAMPLES in found:
        return (Finding(tuple(sample_findings(case))),)
    if Role.RATE in found:
        return (Finding(tuple(_rate(case))), *generators)
    if Role.SKIPPED in found or Role.SCALER in found:
        return (Finding((_scaler(case),)),)
    if generators:
        return tuple(generators)
    if Role.LOSS in found or Role.NORM in found:
        return (Finding(tuple(_forward_or_backward(case, Role.LOSS in found))),)
    for role, rule in ((Role.OPTIMIZER, _update), (Role.MODEL, _update), (Role.SCHEDULER, _scheduler)):
        if role in found:
            return (Finding(tuple(rule(case))),)
    return (Finding((_rest(case),)),)


def _where(case: Case) -> str:
    return "the first update after the restore" if case.follows_restore else f"update {case.step}"


def _rounding(case: Case) -> Cause:
    largest = max((d for d in case.divergence.differences if d.relative is not None), key=lambda d: d.relative or 0.0)
    return Cause(Kind.ROUNDING, largest.part, f"samples and generators are equal, {largest.part} differs by "
                 f"{largest.relative:.1e} relatively: rounding only, as from another order of summation, thread count, "
                 "library or device")


def _is_rounding(case: Case) -> bool:
    return case.tiny and not any(role_of(d.part) in _DISCRETE for d in case.divergence.differences)


def _rate(case: Case) -> list[Cause]:
    part, shifts = _scheduler_part(case), case.rate_shifts
    if shifts:
        others = [k for k in shifts[1:4] if abs(k) <= abs(shifts[0]) + 3]
        named = ", ".join(f"{k:+d}" for k in others)
        alike = f" (or by {named}: the rate changes too seldom to tell)" if others else ""
        return [Cause(Kind.RATE_SHIFTED, part, f"from {_where(case)} on the rates are A's, "
                      f"{shift_text(shifts[0], 'update')}{alike}")]
    difference = case.difference(Role.RATE)
    causes = [_rounding(case)] if _is_rounding(case) else []
    return [*causes, Cause(Kind.OTHER_RATE, part, f"{_where(case)} has another rate ({difference.detail}), found "
                           "nowhere near in A: another schedule, or another scheduler state")] if difference else causes


def _scheduler_part(case: Case) -> str:
    return next((d.part for d in case.of_role(Role.SCHEDULER)), Role.RATE)


def _scheduler(case: Case) -> list[Cause]:
    difference = case.of_role(Role.SCHEDULER)[0]
    steps = _moments(case, difference)
    if steps:
        k = min((step - case.step for step in steps), key=abs)
        text = f"after {_where(case)} the scheduler is A's {shift_text(k, 'update')}: the rate will be"
    else:
        text = f"after {_where(case)} the scheduler is in a state that A never had"
    return [Cause(Kind.RATE_SHIFTED, difference.part, text)]


def _moments(case: Case, difference: Difference) -> tuple[int, ...]:
    rank = difference.ranks[0]
    digest = case.records[case.step, rank].state.get(difference.part)
    return () if digest is None else case.reference.moments(difference.part, digest, rank)


def _generator(case: Case, difference: Difference) -> list[Cause]:
    name = f"the {generator_name(difference.part)} generator{ranks_text(difference, case.reference.trace.ranks)}"
    steps = [step for step in _moments(case, difference) if step != case.step]
    seen = f": it is then exactly as after A's update {steps[0]}" if steps else ""
    return [
        Cause(Kind.RESEEDED, difference.part, f"{name} was re-seeded before {_where(case)}{seen}"),
        Cause(Kind.OTHER_COMPUTATION, difference.part, f"or {_where(case)} drew from it another number of times"),
    ][: 1 if steps else 2]


def _scaler(case: Case) -> Cause:
    skipped = case.difference(Role.SKIPPED)
    difference = case.difference(Role.SCALER) or skipped
    detail = skipped.detail if skipped else "its state differs"
    part = difference.part if difference else Role.SCALER
    return Cause(Kind.SCALER_LOST, part, f"the gradient scaler of {_where(case)} is another one ({detail}): its scale "
                 "or its count of updates without overflow was lost")


def _forward_or_backward(case: Case, loss: bool) -> list[Cause]:
    """Samples, rate and generators are equal, the loss or only the gradient is not."""
    rounding = [_rounding(case)] if _is_rounding(case) else []
    if not loss:
        return [*rounding, Cause(Kind.GRADIENTS_LOST, Role.NORM, f"samples and loss of {_where(case)} are equal, its "
                                 "gradient is not: gradients of some microbatches are lost, or counted twice")]
    other = Cause(Kind.OTHER_COMPUTATION, Role.LOSS, f"samples, rate and generators of {_where(case)} are equal, its "
                  "loss is not: other contents under the same ids, other code, or a state that is not recorded")
    if case.follows_restore and not rounding:
        return [other, Cause(Kind.GRADIENTS_LOST, Role.LOSS, "or microbatches before the restore are missing from the "
                             "sum: partial gradients lost")]
    return [*rounding, other]


def _update(case: Case) -> list[Cause]:
    """Samples, rate, loss and gradient are equal as far as recorded; what the optimizer made of them is not."""
    rounding = [_rounding(case)] if _is_rounding(case) else []
    lost = Cause(Kind.HISTORY_LOST, "optimizer", f"samples, rate and loss of {_where(case)} are equal, what the "
                 "optimizer made of them is not: its history (momentum, moments, counts) is lost or another one")
    recorded = all(r.gradient_norm is not None for (step, _), r in case.records.items() if step == case.step)
    alike = [] if recorded else [Cause(Kind.GRADIENTS_LOST, "gradients", "the gradient's norm is not recorded: lost "
                                       "partial gradients would look the same")]
    return [lost, *alike, *rounding]


def _rest(case: Case) -> Cause:
    difference = case.divergence.differences[0]
    what = f"{difference.part}{ranks_text(difference, case.reference.trace.ranks)}"
    return Cause(Kind.OTHER_STATE, difference.part, f"after {_where(case)} only {what} differs ({difference.detail}): "
                 "the update itself was the same")
