"""Producer, bounded queue and consumer, exactly: when each batch is prepared and trained, in whole microseconds.

Pure. A batch is prepared by the data worker that is free first, at the earliest when one of `depth` places ahead of
training is free: the place of batch i is free once batch i − depth is taken into training. So `depth` bounds what is
prepared or in preparation and not yet taken. Depth 0 prepares on demand, which is serial. Batches are trained in order,
one after another.
"""

from __future__ import annotations

import random
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from fractions import Fraction


@dataclass(frozen=True)
class Passage:
    """One batch on its way; all times in µs since the start.

    wait_us: how long training stood idle for it. ready: batches that lay prepared behind it when it was taken.
    in_flight: batches whose preparation had begun and that were not taken, the moment before it was.
    """

    batch: int
    prepare_start_us: int
    prepare_end_us: int
    train_start_us: int
    train_end_us: int
    wait_us: int
    ready: int
    in_flight: int


@dataclass(frozen=True)
class Timeline:
    """All batches of one run in order, at least one."""

    passages: tuple[Passage, ...]

    @property
    def total_us(self) -> int:
        return self.passages[-1].train_end_us

    @property
    def waited_us(self) -> int:
        """How long training stood idle between its batches, without the unavoidable wait for the first one."""
        return sum(passage.wait_us for passage in self.passages[1:])

    @property
    def interval_us(self) -> Fraction | None:
        """Mean time from one batch's end of training to the next one's: the steady state. None for a single batch."""
        steps = len(self.passages) - 1
        span = self.passages[-1].train_end_us - self.passages[0].train_end_us
        return Fraction(span, steps) if steps else None

    @property
    def most_in_flight(self) -> int:
        return max(passage.in_flight for passage in self.passages)


def schedule(
    prepare_us: Sequence[int], train_us: Sequence[int], depth: int, workers: int = 1, behind: int = 0
) -> Timeline:
    """When what happens, given how long each batch takes to prepare and to train.

    behind: how many further batches must be prepared before one is taken, as a reader with a window of that size has
    it; the last ones are taken without. Raises ValueError for no batches, lists of two lengths, a negative time or
    depth, no worker, or a window that the queue cannot hold.
    """
    if not prepare_us or len(prepare_us) != len(train_us) or min(*prepare_us, *train_us, depth) < 0 or workers < 1:
        raise ValueError("needs at least one batch, two times from 0 for each, a depth from 0 and a worker")
    if not 0 <= behind <= max(0, depth - 1):
        raise ValueError(f"a queue of depth {depth} never has {behind} batches behind the next one")
    free_us = [0] * workers
    prepared: list[tuple[int, int]] = []
    trained: list[tuple[int, int]] = []
    seen_us = 0  # when all that is prepared so far had come
    for batch, preparing_us in enumerate(prepare_us):
        worker = free_us.index(min(free_us))
        start_us = max(free_us[worker], _place_free_us(trained, batch, depth))
        free_us[worker] = start_us + preparing_us
        prepared.append((start_us, free_us[worker]))
        seen_us = max(seen_us, free_us[worker])
        last = batch == len(prepare_us) - 1
        while len(trained) < len(prepared) - (0 if last else behind):
            taken_us = max(seen_us, trained[-1][1] if trained else 0)
            trained.append((taken_us, taken_us + train_us[len(trained)]))
    return Timeline(tuple(_passages(prepared, trained)))


def _place_free_us(trained: Sequence[tuple[int, int]], batch: int, depth: int) -> int:
    if depth == 0:
        return trained[-1][1] if trained else 0
    return trained[batch - depth][0] if batch >= depth else 0


def _passages(prepared: Sequence[tuple[int, int]], trained: Sequence[tuple[int, int]]) -> Iterator[Passage]:
    before_us = 0
    for batch, ((begun_us, ready_us), (taken_us, done_us)) in enumerate(zip(prepared, trained, strict=True)):
        behind = prepared[batch + 1 :]
        ready = sum(end_us <= taken_us for _, end_us in behind)
        in_flight = 1 + sum(start_us < taken_us for start_us, _ in behind)
        yield Passage(batch, begun_us, ready_us, taken_us, done_us, taken_us - before_us, ready, in_flight)
        before_us = done_us


def slower_stage_us(prepare_us: Sequence[int], train_us: Sequence[int]) -> int:
    """What no depth beats, with one data worker: each stage does all its work, and one batch passes the other one.

    All preparation, then the last batch's training; or the first batch's preparation, then all training.
    """
    return max(sum(prepare_us) + train_us[-1], prepare_us[0] + sum(train_us))


def preparation_times_us(prepare_us: int, jitter_us: int, batches: int, seed: int) -> list[int]:
    """`prepare_us` for each batch, plus a whole number from −jitter_us to jitter_us, each as likely, from `seed`."""
    if not 0 <= jitter_us <= prepare_us:
        raise ValueError(f"a jitter of {jitter_us} µs is not between 0 and the preparation time, {prepare_us} µs")
    drawn = random.Random(seed)
    return [prepare_us + (drawn.randint(-jitter_us, jitter_us) if jitter_us else 0) for _ in range(batches)]
