"""Causes that show in what an attempt restored: which part is not what A had after the same step. Pure.

The strongest evidence is a part that is exactly what A had at another moment: at its beginning (the part was built
afresh), or after another step (the state is of two moments).
"""

from __future__ import annotations

from collections.abc import Callable, Mapping

from chaos.diff.causes import ROUNDING, Case, Cause, Finding, Kind, ranks_text
from chaos.diff.compare import expected_cursor
from chaos.diff.differences import Difference
from chaos.diff.parts import Role, generator_name, part_of, role_of
from chaos.diff.sample_causes import cursor_causes

Rule = Callable[[Case, Difference, int | None], list[Cause]]


def restored_findings(case: Case) -> tuple[Finding, ...]:
    """One finding a part, or one for all parts that belong to the same other moment."""
    differences = _parts_only(case)
    if case.step == case.reference.first_step and not _checkpoint(case):
        return (_other_start(case, differences),)
    moments = {d.part: _moment(case, d) for d in differences}
    findings: list[Finding] = []
    apart = [d for d in differences if moments[d.part] not in (None, case.reference.first_step)]
    if len({moments[d.part] for d in apart}) == 1 and len([d for d in apart if role_of(d.part) is not Role.CURSOR]) > 1:
        findings.append(Finding((_two_moments(case, apart, moments[apart[0].part] or 0),)))
        differences = [d for d in differences if d not in apart]
    findings += [Finding(tuple(_RULES.get(role_of(d.part), _other)(case, d, moments[d.part]))) for d in differences]
    return tuple(findings)


def _parts_only(case: Case) -> list[Difference]:
    """Without values whose part is there itself, and without the cursor where the part that holds it is there."""
    parts = {d.part for d in case.divergence.differences}
    held = any(role_of(part) is Role.CURSOR and part != Role.CURSOR for part in parts)
    return [d for d in case.divergence.differences
            if not ("/" in d.part and part_of(d.part) in parts) and not (d.part == Role.CURSOR and held)]


def _checkpoint(case: Case) -> bool:
    return any(start.checkpoint is not None for start in case.starts.values())


def _moment(case: Case, difference: Difference) -> int | None:
    """The step after which A's part was exactly this: the beginning if it may be, else the nearest; None if none."""
    rank = difference.ranks[0]
    start = case.starts.get(rank)
    digest = None if start is None else start.state.get(difference.part)
    if digest is None:
        return None
    steps = case.reference.moments(difference.part, digest, rank)
    if case.reference.first_step in steps:
        return case.reference.first_step
    return min(steps, key=lambda step: abs(step - case.step), default=None)


def _other_start(case: Case, differences: list[Difference]) -> Finding:
    """Nothing was restored: the attempt began elsewhere."""
    named = ", ".join(d.part for d in differences)
    roles = {role_of(d.part) for d in differences}
    what = "another seed" if Role.GENERATOR in roles else "another configuration or other code"
    text = f"{case.here} begins with another {named}: {what}, nothing that a restore did"
    return Finding((Cause(Kind.OTHER_START, differences[0].part, text),))


def _two_moments(case: Case, differences: list[Difference], moment: int) -> Cause:
    parts = [d.part for d in differences]
    rest = {part for start in case.starts.values() for part in start.state} - set(parts)
    named = f"{', '.join(parts)} {'is' if len(parts) == 1 else 'are'} exactly A's of step {moment}"
    if not rest:
        text = f"the whole state is exactly A's of step {moment}, taken for that of step {case.step}"
    else:
        text = f"{named}, the other parts are of step {case.step}: the state is from two moments"
    return Cause(Kind.TWO_MOMENTS, parts[0], text)


def _what(case: Case, difference: Difference) -> str:
    return f"the {difference.part}{ranks_text(difference, case.reference.trace.ranks)} that {case.here} restored"


def _fresh(case: Case, moment: int | None) -> bool:
    return moment is not None and moment == case.reference.first_step


def _optimizer(case: Case, difference: Difference, moment: int | None) -> list[Cause]:
    lost = Cause(Kind.HISTORY_LOST, difference.part,
                 f"{_what(case, difference)} {_why_lost(case, difference, moment)}: what it had gathered over "
                 f"{case.step} updates (momentum, moments, counts) is lost")
    if _fresh(case, moment) or _emptied(case, difference):
        return [lost]
    if moment is not None:
        return [_two_moments(case, [difference], moment)]
    if _small(difference):
        return [_rounding(case, difference), lost]
    if case.of_role(Role.SCHEDULER):
        return [lost, Cause(Kind.RATE_SHIFTED, difference.part,
                            "its groups hold the rate, and the scheduler differs too: that alone may be it")]
    return [lost]


def _why_lost(case: Case, difference: Difference, moment: int | None) -> str:
    if _fresh(case, moment):
        return f"is a fresh one, exactly what A had at step {case.reference.first_step}"
    if _emptied(case, difference):
        return "holds no history, or only zeros"
    return f"is not A's of step {case.step}, nor that of any other step"


def _emptied(case: Case, difference: Difference) -> bool:
    """Whether the values show that B's optimizer has nothing where A's has something."""
    rank = difference.ranks[0]
    start, held = case.starts.get(rank), case.reference.held.get((case.step, rank))
    if start is None or held is None:
        return False
    theirs, mine = _inside(held.values, difference.part), _inside(start.values, difference.part)
    return bool(theirs) and all(float.fromhex(n) == 0 for numbers in mine.values() for n in numbers)


def _inside(values: Mapping[str, tuple[str, ...]], part: str) -> dict[str, tuple[str, ...]]:
    return {name: numbers for name, numbers in values.items() if part_of(name) == part}


def _small(difference: Difference) -> bool:
    return difference.relative is not None and difference.relative <= ROUNDING


def _rounding(case: Case, difference: Difference) -> Cause:
    return Cause(Kind.ROUNDING, difference.part, f"{_what(case, difference)} differs by {difference.relative:.1e} at "
                 "most, relatively: rounding, as by a conversion to another type or through text")


def _generator(case: Case, difference: Difference, moment: int | None) -> list[Cause]:
    name, rank = generator_name(difference.part), difference.ranks[0]
    start = case.starts.get(rank)
    digest = start.state.get(difference.part, "") if start else ""
    other = case.reference.rank_with(difference.part, digest, case.step)
    what = f"the {name} generator{ranks_text(difference, case.reference.trace.ranks)}"
    if other is not None and not _fresh(case, moment):
        return [Cause(Kind.OTHER_STATE, difference.part, f"{what} has exactly the state of rank {other}'s: the ranks' "
                      "generators were exchanged, or one was given to all")]
    if moment is not None and not _fresh(case, moment):
        return [_two_moments(case, [difference], moment)]
    why = (f"it is exactly as it was at A's step {case.reference.first_step}" if _fresh(case, moment)
           else f"its state is not A's of step {case.step}, nor that of any other step")
    return [Cause(Kind.RESEEDED, difference.part, f"{what} was re-seeded, or not restored: {why}")]


def _scheduler(case: Case, difference: Difference, moment: int | None) -> list[Cause]:
    seen = case.rate_shifts
    shown = f"; its rates are then A's {shift_text(seen[0], 'update')}" if seen else ""
    if _fresh(case, moment):
        text = f"{_what(case, difference)} is a fresh one: it counts from 0, {case.step} updates behind{shown}"
    elif moment is not None:
        text = f"{_what(case, difference)} is A's of step {moment}: {shift_text(moment - case.step, 'update')}{shown}"
    else:
        text = f"{_what(case, difference)} is not A's of step {case.step}, nor that of any other step{shown}"
    shifted = Cause(Kind.RATE_SHIFTED, difference.part, text)
    if moment is not None and not _fresh(case, moment):
        return [shifted, _two_moments(case, [difference], moment)]
    return [shifted]


def shift_text(k: int, unit: str) -> str:
    """`3 updates behind`, `1 sample ahead`."""
    return f"{abs(k)} {unit}{'' if abs(k) == 1 else 's'} {'ahead' if k > 0 else 'behind'}"


def _model(case: Case, difference: Difference, moment: int | None) -> list[Cause]:
    if _fresh(case, moment):
        return [Cause(Kind.PART_LOST, difference.part, f"{_what(case, difference)} is the untrained one")]
    if moment is not None:
        return [_two_moments(case, [difference], moment)]
    return [_rounding(case, difference)] if _small(difference) else _other(case, difference, moment)


def _cursor(case: Case, difference: Difference, moment: int | None) -> list[Cause]:
    causes = cursor_causes(case, difference.part) or _stated_cursor(case, difference.part)
    if moment is not None and moment != case.step:
        samples = (moment - case.step) * case.reference.trace.global_batch
        kind = Kind.CURSOR_AHEAD if samples > 0 else Kind.CURSOR_BEHIND
        causes = causes or [Cause(kind, difference.part, f"{_what(case, difference)} is A's of step {moment}: "
                                  f"{shift_text(samples, 'sample')}")]
        if not _fresh(case, moment):
            causes = [*causes, _two_moments(case, [difference], moment)]
    return causes or _other(case, difference, moment)


def _stated_cursor(case: Case, part: str) -> list[Cause]:
    """By the cursor that B states, where its samples do not show it: too few follow, or they lie beyond A's end."""
    start = next(iter(case.starts.values()), None)
    n = 0 if start is None else start.cursor - expected_cursor(case.reference, start)
    if not n or not case.of_role(Role.CURSOR):
        return []
    kind = Kind.CURSOR_AHEAD if n > 0 else Kind.CURSOR_BEHIND
    what = "samples are left out: prefetched was taken for consumed" if n > 0 else "samples are applied twice"
    return [Cause(kind, part, f"the cursor that {case.here} restored is {shift_text(n, 'sample')}: {abs(n)} {what}")]


def _gradients(case: Case, difference: Difference, moment: int | None) -> list[Cause]:
    return [Cause(Kind.GRADIENTS_LOST, difference.part, f"{_what(case, difference)} are not those that A had gathered: "
                  "the gradients of the microbatches before the restore are lost or others")]


def _order(case: Case, difference: Difference, moment: int | None) -> list[Cause]:
    return [Cause(Kind.WRONG_ORDER, difference.part, f"{_what(case, difference)} is not the order that A used")]


def _scaler(case: Case, difference: Difference, moment: int | None) -> list[Cause]:
    if moment is not None and not _fresh(case, moment):
        return [_two_moments(case, [difference], moment)]
    return [Cause(Kind.SCALER_LOST, difference.part, f"{_what(case, difference)} is not A's of step {case.step}: other "
                  "updates will overflow and be skipped")]


def _other(case: Case, difference: Difference, moment: int | None) -> list[Cause]:
    if _fresh(case, moment):
        text = f"{_what(case, difference)} is a fresh one: it was not restored"
        return [Cause(Kind.PART_LOST, difference.part, text)]
    if moment is not None:
        return [_two_moments(case, [difference], moment)]
    return [Cause(Kind.OTHER_STATE, difference.part, f"{_what(case, difference)} is not A's of step {case.step}, nor "
                  f"that of any other step ({difference.detail})")]


_RULES: Mapping[Role, Rule] = {
    Role.OPTIMIZER: _optimizer, Role.GENERATOR: _generator, Role.SCHEDULER: _scheduler, Role.MODEL: _model,
    Role.CURSOR: _cursor, Role.GRADIENTS: _gradients, Role.ORDER: _order, Role.SCALER: _scaler,
}  # fmt: skip
