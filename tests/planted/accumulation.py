"""A defect of the accumulation itself (bug 26), which a twin shares: only an oracle of another kind sees it."""

from __future__ import annotations

from typing import Any

import numpy as np
from scenes import struck

from chaos.gallery.bugs import ORACLE, Bug, Case, Here, Replacement
from trainers.source import Microbatch


def mean_of_means(widened: Any, here: Here) -> Any:
    """Each microbatch weighs as much as any other, however many samples it has."""

    def planted(losses: Any) -> Any:
        run = here.notes["run"]
        whole, share = run.share.global_batch, run.share.microbatches * run.share.ranks
        return widened(losses) * (whole / (len(losses) * share))

    return planted


def remember(train: Any, here: Here) -> Any:
    def planted(run: Any) -> None:
        here.notes["run"] = run
        train(run)

    return planted


def joined(first: Microbatch, second: Microbatch) -> Microbatch:
    columns = {name: np.concatenate([first.columns[name], second.columns[name]]) for name in first.columns}
    positions = np.concatenate([first.positions, second.positions])
    return Microbatch(positions, np.concatenate([first.sample_ids, second.sample_ids]), columns)


def part(batch: Microbatch, rows: slice) -> Microbatch:
    columns = {name: values[rows].copy() for name, values in batch.columns.items()}
    return Microbatch(batch.positions[rows], batch.sample_ids[rows], columns)


def ragged(take: Any, here: Here) -> Any:
    """The two microbatches of a step have two samples more and two less than half."""

    def also(pipeline: Any) -> Microbatch:
        rest = pipeline.__dict__.pop("_rest", None)
        if rest is not None:
            return rest
        both = joined(take(pipeline), take(pipeline))
        cut = len(both.sample_ids) // 2 + 2
        pipeline._rest = part(both, slice(cut, None))
        return part(both, slice(None, cut))

    return also


def by_position(note: Any, here: Here) -> Any:
    """The ledger counts a sample to the microbatch that its position belongs to."""

    def also(consumed: Any, step: int, microbatch: int, batch: Microbatch) -> None:
        note(consumed, step, microbatch, batch)
        share = here.notes["run"].share
        consumed.rows[-1].microbatch[:] = batch.positions % share.rows // share.microbatch_rows

    return also


BUGS = (
    Bug(
        26, "the mean of microbatch means, over ragged microbatches",
        (Replacement("trainers.loop.widened", mean_of_means), Replacement("trainers.rank.train", remember)),
        Case(
            (struck(),), {"workload": "linreg"}, oracle=True,
            also=(
                Replacement("trainers.pipeline.Pipeline.next", ragged),
                Replacement("trainers.loop.Consumed.note", by_position),
            ),
        ),
        Case((struck(microbatches=1),), {"workload": "linreg", "microbatches": 1}, oracle=True),
        {ORACLE: r"the gradient norm of step 1 is .*, in float64 as a single batch of 16 samples .*tolerance 0\.0001"},
        "a step was one microbatch", "a common error of accumulation",
    ),
)  # fmt: skip
