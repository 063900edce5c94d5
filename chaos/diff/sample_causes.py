"""Causes that show in which samples an update consumed: a cursor that is off, another order. Pure."""

from __future__ import annotations

from chaos.diff.causes import Case, Cause, Kind, same_samples
from chaos.diff.parts import Role, generator_name
from chaos.diff.shifts import SampleShift

_SHOWN = 3


def sample_findings(case: Case) -> list[Cause]:
    """Causes for an update that consumed other samples, likeliest first."""
    generators = case.of_role(Role.GENERATOR)
    drawn = [Cause(Kind.RESEEDED, d.part, f"the {generator_name(d.part)} generator gave another order: re-seeded, or "
                   "not restored") for d in generators]  # fmt: skip
    if lost := _cut_short(case):
        return [lost]
    return drawn + (cursor_causes(case, Role.SAMPLES) or [_other_order(case)])


def cursor_causes(case: Case, part: str) -> list[Cause]:
    """From the stream of samples itself: by how many it is shifted. Empty if it is found nowhere in A."""
    causes: list[Cause] = []
    for shift in [s for s in case.shifts if s.samples][:_SHOWN]:
        rows = case.reference.trace.rows
        if rows and shift.samples % rows == 0:
            causes.append(_epoch_order(case, part, shift, shift.samples // rows))
        causes.append(_shifted(case, part, shift))
    return causes


def _shifted(case: Case, part: str, shift: SampleShift) -> Cause:
    n, batch = shift.samples, case.reference.trace.global_batch
    rest = "" if shift.whole else f" for {shift.matched} samples, then in another order"
    steps = f" ({abs(n) // batch} whole updates)" if n % batch == 0 and abs(n) > batch else ""
    if n > 0:
        what = f"{n} samples that no update applied are left out: prefetched was taken for consumed"
        kind = Kind.CURSOR_AHEAD
    else:
        what = f"{-n} samples are applied twice"
        kind = Kind.CURSOR_BEHIND
    return Cause(kind, part, f"the cursor is {'ahead' if n > 0 else 'behind'} by {abs(n)} samples{steps}: {case.here} "
                 f"reads what A read, {abs(n)} samples {'later' if n > 0 else 'before'}{rest}; {what}")


def _epoch_order(case: Case, part: str, shift: SampleShift, epochs: int) -> Cause:
    rows = case.reference.trace.rows or 1
    update = case.step if case.divergence.restored else case.step - 1
    epoch = update * case.reference.trace.global_batch // rows
    return Cause(Kind.WRONG_ORDER, part, f"epoch {epoch} is read in the order of epoch {epoch + epochs} "
                 f"(for {shift.matched} samples)")


def _cut_short(case: Case) -> Cause | None:
    """The update consumed only the last of A's samples: those microbatches that came after the restore."""
    for rank in {rank for step, rank in case.records if step == case.step}:
        a, b = case.reference.records.get((case.step, rank)), case.records[case.step, rank]
        if a is None or a.ids is None or b.ids is None:
            continue
        if 0 < len(b.ids) < len(a.ids) and a.ids[-len(b.ids):] == b.ids:
            return Cause(Kind.GRADIENTS_LOST, Role.SAMPLES, f"update {case.step} consumed only the last {len(b.ids)} "
                         f"of {len(a.ids)} samples: the gradients of the microbatches before the restore are lost")
    return None


def _other_order(case: Case) -> Cause:
    batch, rows = case.reference.trace.global_batch, case.reference.trace.rows
    a, b = (case.ids(dict(records), case.step) for records in (case.reference.records, case.records))
    if rows and len(b):
        left = rows - (case.step - 1) * batch % rows  # samples of this epoch from here on
        if min(len(a), len(b)) >= left and same_samples(a[:left], b[:left]):
            return Cause(Kind.WRONG_ORDER, Role.SAMPLES, f"the {left} samples that are left of the epoch are A's, in "
                         "another order: the shuffle differs, not the cursor")
    difference = case.difference(Role.SAMPLES)
    detail = difference.detail if difference else ""
    return Cause(Kind.WRONG_ORDER, Role.SAMPLES, f"the samples are found nowhere in A's order ({detail}): another "
                 "shuffle, of another epoch or seed, or another dataset")
