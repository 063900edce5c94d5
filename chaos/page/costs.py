"""What recoveries cost, and how the input kept up: rows for the figures. Pure."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import numpy as np

from chaos.audit.evidence import Evidence
from chaos.audit.recoveries import Recovery
from chaos.audit.witnesses import boot
from chaos.cost.values import PARTS
from chaos.cost.values import Recovery as Measured
from chaos.page.clock import Clock
from chaos.page.timeline import Update
from chaos.page.values import Cost, Part, Waiting

BINS = 160
FIRST_STEP, UNEXPLAINED, CATCH_UP = "input and first step", "unexplained", "catch up"


def costs(judged: Sequence[Recovery], measured: Sequence[Measured]) -> tuple[Cost, ...]:
    """One for each recovery, in order. judged: as the verdict has them. measured: part by part, as far as is known."""
    known = {each.attempt: each for each in measured if each.parts is not None}
    if not judged:  # of a run whose store is gone
        return tuple(
            Cost(n, tuple(_measured(each)), each.whole_s, each.restored_step, each.redo_steps, each.redo_samples)
            for n, each in known.items()
        )
    return tuple(
        Cost(
            each.attempt, tuple(_measured(known[each.attempt]) if each.attempt in known else _judged(each)),
            each.first_step_s, each.restored_step, each.redo_steps, each.redo_samples,
        )
        for each in judged
    )  # fmt: skip


def _measured(each: Measured) -> Iterator[tuple[str, float]]:
    """From the strike to the first new step; what no part accounts for; and until caught up."""
    assert each.parts is not None
    for name in PARTS:
        yield name.replace("_", " "), getattr(each.parts, f"{name}_s")
    if each.unexplained_s is not None:
        yield UNEXPLAINED, each.unexplained_s
    if each.caught_up_s is not None and each.whole_s is not None:
        yield CATCH_UP, max(0.0, each.caught_up_s - each.whole_s)


def _judged(each: Recovery) -> Iterator[tuple[str, float]]:
    """From the strike until caught up. What the first new update takes is what is left of the time to its end."""
    spent = 0.0
    for part, part_s in ((Part.DETECT, each.detect_s), (Part.REACQUIRE, each.reacquire_s), (Part.LOAD, each.load_s)):
        if part_s is None:
            return
        spent += part_s
        yield part.value, part_s
    if each.first_step_s is None:
        return
    first_s = max(0.0, each.first_step_s - spent)
    yield FIRST_STEP, first_s
    if each.redo_s is not None:
        yield CATCH_UP, max(0.0, each.redo_s - first_s)


def waiting(evidence: Evidence, clock: Clock, done: Sequence[Update], end_us: int) -> tuple[Waiting, ...]:
    """Input wait and queue depth of each rank, in bins of time; updates without a measurement are left out."""
    rows = [
        (update.event.what.rank, at, update.measured.wait_s, update.measured.queue_depth)
        for update in done
        if update.measured.wait_s is not None and update.measured.queue_depth is not None
        and (at := clock.us(boot(evidence, update.event.file), update.event.t_ns)) is not None
    ]  # fmt: skip
    if not rows:
        return ()
    table = np.array(rows, np.float64)
    width = max(1.0, end_us / BINS)
    found = []
    for rank in np.unique(table[:, 0]).tolist():
        mine = table[table[:, 0] == rank]
        bins = (mine[:, 1] // width).astype(np.int64)
        for number in np.unique(bins).tolist():
            _, at, wait, depth = mine[bins == number].T
            found.append(Waiting(
                int(rank), int(at.mean()), len(at), float(wait.mean()), float(wait.max()), float(depth.mean()),
                float(depth.min()),
            ))  # fmt: skip
    return tuple(found)
