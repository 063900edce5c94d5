"""Defects of the cursor and of the order of samples after a restart (bugs 4 to 10, 29).

All of them show after a restart from a checkpoint only, where the rank reads for itself: by the same function that Ray
Data's tasks run.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from scenes import FROM_NOTHING, kill, struck

from chaos.gallery.bugs import Bug, Case, Here, Replacement
from trainers.source import Span


class Reordered:
    """A plan whose samples are those of other positions."""

    def __init__(self, plan: Any, position: Callable[[Any], Any]) -> None:
        self._plan, self._position = plan, position

    def sample_ids(self, positions: Any) -> Any:
        return self._plan.sample_ids(self._position(positions))


def after_resume(
    step: Callable[[int, int, int], int] = lambda step, first, epoch: step,
    position: Callable[[Any, int], Any] | None = None,
) -> tuple[Replacement, ...]:
    """The reader takes `step(step, first, epoch)` for a step, first being the one that it resumes at, epoch how many
    there are in one; or the samples of `position(positions, rows)`.
    """

    def make(read_span: Any, here: Here) -> Any:
        def planted(dataset: Any, plan: Any, share: Any, span: Span) -> Any:
            first = here.notes.setdefault(here.attempt, span.first_step)
            here.notes["resumed"] = first > 0
            if not first:
                return read_span(dataset, plan, share, span)
            changed = plan if position is None else Reordered(plan, lambda positions: position(positions, plan.rows))
            moved = step(span.first_step, first, plan.rows // share.global_batch)
            return read_span(dataset, changed, share, Span(span.number, moved, span.steps))

        return planted

    def whole(lead_steps: Any, here: Here) -> Any:
        return lambda share, row_bytes, steps: steps

    return Replacement("trainers.pipeline.read_span", make), Replacement("trainers.pipeline._lead_steps", whole)


def of_first_epoch(positions: Any, rows: int) -> Any:
    return positions % rows


def second_epoch_again(positions: Any, rows: int) -> Any:
    return positions - (positions // rows == 2) * rows


def only_tails(step: int, first: int, epoch: int) -> int:
    """Of every epoch only what lies after the place of the resume in its own."""
    offset = first % epoch
    epochs, rest = divmod(step - first, epoch - offset)
    return (first // epoch + epochs) * epoch + offset + rest


def skip_epoch_at_boundary(step: int, first: int, epoch: int) -> int:
    return step + epoch if first % epoch == 0 else step


def next_shard(read_samples: Any, here: Here) -> Any:
    """The rows that lie one shard (32 rows) further on."""
    return lambda dataset, ids: read_samples(dataset, (ids + 32) % 96 if here.notes.get("resumed") else ids)


DIES_EARLY = Case((kill("microbatch.forward", 1, rank=1),))
ONE_EPOCH = Case((struck(),), {"config": {"rows": 960}})
IN_ONE_EPOCH = "the run stayed within one epoch"
TWIN = frozenset({5})

BUGS = (
    Bug(
        4, "the cursor counts batches prefetched, not applied", after_resume(lambda step, first, epoch: step + 4),
        Case((struck(),)), DIES_EARLY,
        {3: r"samples at positions 48–111 .* were never applied.*attempt 1 went on with position 112 at step 3"},
        FROM_NOTHING, "reference figures E", may=TWIN,
    ),
    Bug(
        5, "the cursor is saved before the step's increment: the last batch runs again",
        after_resume(lambda step, first, epoch: step - 1), Case((struck(),)), DIES_EARLY,
        {3: r"samples at positions 32–47 .* were applied twice.*: at step 2 by attempt 0 and at step 3 by attempt 1; "
            "attempt 1 restored cursor 48 beside optimizer step 3"},
        FROM_NOTHING, "pytorch-lightning#19815, accelerate#3938", may=TWIN,
    ),
    Bug(
        6, "after the restart the order of every epoch is that of epoch 0", after_resume(position=of_first_epoch),
        Case((struck(step=8, save=2),)), ONE_EPOCH,
        {3: "the order differs from the plan in epoch 1: at step 6 attempt 1 consumed .*; it is the order of epoch 0"},
        IN_ONE_EPOCH, "transformers#40691, accelerate#2016", may=TWIN,
    ),
    Bug(
        7, "a resume at an epoch's boundary skips the next epoch", after_resume(skip_epoch_at_boundary),
        Case((struck(step=8, save=2),)), ONE_EPOCH,
        {3: "samples at positions 96–191 .* were never applied, the whole of epoch 1"},
        IN_ONE_EPOCH, "verl#7401", may=TWIN,
    ),
    Bug(
        8, "the counter is restored, the data restarts at 0", after_resume(lambda step, first, epoch: step - first),
        Case((struck(),)), DIES_EARLY,
        {3: "samples at positions 0–15 .* were applied twice .*: at step 0 by attempt 0 and at step 3 by attempt 1; "
            "attempt 1 restored cursor 48 beside optimizer step 3"},
        FROM_NOTHING, "Megatron-Bridge#3503, streaming#437, #880", may=TWIN,
    ),
    Bug(
        9, "later epochs replay only the tail after the place of the resume", after_resume(only_tails),
        Case((struck(),), {"steps": 15}), ONE_EPOCH,
        {3: "samples at positions 96–143 .* were never applied .*in epoch 1: "
            "attempt 1 went on with position 144 at step 6"},
        IN_ONE_EPOCH, "Megatron-Bridge#4565", may=TWIN,
    ),
    Bug(
        10, "the third epoch repeats the order of the second one after a resume",
        after_resume(position=second_epoch_again), Case((struck(),), {"steps": 18}), ONE_EPOCH,
        {3: "the order differs from the plan in epoch 2: at step 12 attempt 1 consumed .*; it is the order of epoch 1"},
        IN_ONE_EPOCH, "litData#760", may=TWIN,
    ),
    Bug(
        29, "right sample ids, wrong rows: the reader is off by one shard",
        (*after_resume(), Replacement("trainers.source.read_samples", next_shard)), Case((struck(),)), DIES_EARLY,
        {3: r"the content of sample \d+, consumed at step 3 by attempt 1 \(position 48\), "
            "is not that of the dataset's row"},
        FROM_NOTHING, may=TWIN,
    ),
)  # fmt: skip
