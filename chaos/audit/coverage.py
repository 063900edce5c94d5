"""The arithmetic of invariant 3: which positions were applied how often, by which step, with which sample.

Pure, vectorised, in windows of positions: segments are sorted by position, so one window needs one slice of each,
and memory is bounded by the window, not by the run.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field

import numpy as np
import numpy.typing as npt

from chaos.audit.epochs import Epochs
from chaos.audit.evidence import I64, U64, Segment

WINDOW = 1 << 17
_LOOK = 4096  # rows around a first fault that are looked at one by one


@dataclass(frozen=True)
class Expected:
    """What the rows ought to be. plan: positions → sample ids; content[id] counts where known[id] is true.

    rows: of the dataset, 0 if it is not known. absent: [first, end) of positions whose rows may be lost with
    their file, so that a gap there proves nothing. ranks, microbatches: of a step, 0 if the split is not known.
    partial: how many microbatches of the update behind the cursor every rank has consumed.
    """

    cursor: int
    global_batch: int
    rows: int = 0
    plan: Callable[[I64], I64] | None = None
    content: U64 = field(default_factory=lambda: np.zeros(0, np.uint64))
    known: npt.NDArray[np.bool_] = field(default_factory=lambda: np.zeros(0, np.bool_))
    absent: tuple[tuple[int, int], ...] = ()
    ranks: int = 0
    microbatches: int = 0
    partial: int = 0

    @property
    def end(self) -> int:
        """No position from here on has been consumed."""
        return self.cursor + (self.global_batch if self.partial else 0)

    def microbatch(self, position: I64) -> I64:
        """Number of the microbatch that consumes each position: a rank's share of a batch is one run, cut in order."""
        share = self.global_batch // self.ranks
        return position % self.global_batch % share // (share // self.microbatches)

    def consumed(self, position: I64) -> npt.NDArray[np.bool_]:
        """Which positions had to be consumed."""
        applied = (position >= 0) & (position < self.cursor)
        if not self.partial:
            return applied
        return applied | ((position < self.end) & (position >= 0) & (self.microbatch(position) < self.partial))

    def to_come(self) -> Iterator[tuple[int, int]]:
        """[first, end) of the positions before `end` that are not consumed yet."""
        share = self.global_batch // (self.ranks or 1)
        done = self.partial * (share // (self.microbatches or 1))
        for first in range(self.cursor, self.end, share):
            yield first + done, first + share


@dataclass(frozen=True, order=True)
class Spot:
    """One row. segment: index of the segment that it stands in."""

    step: int
    position: int
    sample_id: int
    attempt: int
    segment: int


@dataclass
class Tally:
    """How many rows have a fault, and the first of them by (step, position)."""

    count: int = 0
    first: Spot | None = None
    epochs: set[int] = field(default_factory=set)

    def add(self, rows: Rows, faulty: npt.NDArray[np.bool_], dataset_rows: int = 0) -> None:
        hits = np.flatnonzero(faulty)
        if not hits.size:
            return
        self.count += len(hits)
        least = hits[np.lexsort((rows.position[hits], rows.step[hits]))[0]]
        spot = rows.spot(int(least))
        self.first = spot if self.first is None else min(self.first, spot)
        if dataset_rows:
            self.epochs |= set(np.unique(rows.position[hits] // dataset_rows).tolist())


@dataclass(frozen=True)
class Repeat:
    """Positions first … last, applied by each of `spots` (those of `first`)."""

    first: int
    last: int
    spots: tuple[Spot, ...]


@dataclass
class Coverage:
    """What the ledger does with positions 0 … cursor − 1. All zero and None: exactly what it should."""

    repeated: int = 0
    first_repeat: Repeat | None = None
    never: int = 0
    first_gap: tuple[int, int] | None = None  # first, last
    uncertain: int = 0  # not applied, but the file that may say so is lost
    beyond: Tally = field(default_factory=Tally)
    wrong_step: Tally = field(default_factory=Tally)
    wrong_microbatch: Tally = field(default_factory=Tally)
    outside_segment: Tally = field(default_factory=Tally)
    wrong_sample: Tally = field(default_factory=Tally)
    wrong_content: Tally = field(default_factory=Tally)
    unread: int = 0  # rows whose content could not be compared
    epoch_faults: list[str] = field(default_factory=list)


@dataclass(frozen=True)
class Rows:
    """Rows of several segments, sorted by position, then by segment. owner: index of the segment."""

    position: I64
    sample_id: I64
    content: U64
    step: I64
    microbatch: npt.NDArray[np.int32]
    owner: I64
    attempts: I64  # by segment
    first_step: I64
    last_step: I64
    first_microbatch: I64  # of first_step
    microbatches: I64  # of last_step, 0 for all

    def spot(self, index: int) -> Spot:
        owner = int(self.owner[index])
        return Spot(
            int(self.step[index]), int(self.position[index]), int(self.sample_id[index]),
            int(self.attempts[owner]), owner,
        )  # fmt: skip


def cover(segments: Sequence[Segment], expected: Expected, window: int = WINDOW) -> Coverage:
    """Compares all rows of the lineage's segments with what they ought to be."""
    result = Coverage()
    epochs = Epochs(expected.rows)
    end = 0  # positions below it are accounted for
    for start, rows in _windows(segments, window, expected.end):
        inside = expected.consumed(rows.position)
        result.beyond.add(rows, ~inside)
        _judge_rows(rows, expected, result)
        if start < 0 or start >= expected.end:
            continue
        _note_gap(result, expected, end, start)
        end = min(start + window, expected.end)
        counts = np.bincount(rows.position[inside] - start, minlength=end - start)
        for first, last in _runs(np.flatnonzero(counts == 0) + start):
            _note_gap(result, expected, first, last + 1)
        _note_repeats(result, rows, counts, start)
        epochs.take(rows.position[inside], rows.sample_id[inside])
    _note_gap(result, expected, end, expected.end)
    if not (result.repeated or result.never or result.uncertain):
        result.epoch_faults = epochs.faults(expected.cursor)
    return result


def _windows(segments: Sequence[Segment], window: int, end: int) -> Iterator[tuple[int, Rows]]:
    """Windows of positions that hold any row, ascending, each [start, start + window) and cut at 0 and end."""
    of_segment = [
        np.array([getattr(segment.meta, name) for segment in segments], np.int64)
        for name in ("attempt", "first_step", "last_step", "first_microbatch", "microbatch")
    ]
    places = [0] * len(segments)
    while True:
        waiting = [i for i, segment in enumerate(segments) if places[i] < len(segment.position)]
        if not waiting:
            return
        start = min(int(segments[i].position[places[i]]) for i in waiting)
        limit = start + window
        for cut in (0, end):
            if start < cut < limit:
                limit = cut
        pieces, owners = [], []
        for i in waiting:
            stop = int(np.searchsorted(segments[i].position, limit))
            if stop > places[i]:
                pieces.append((segments[i], slice(places[i], stop)))
                owners.append(np.full(stop - places[i], i, np.int64))
                places[i] = stop
        position = np.concatenate([s.position[cut] for s, cut in pieces])
        order = np.argsort(position, kind="stable")
        sample_id, content, step, microbatch = (
            np.concatenate([getattr(segment, name)[cut] for segment, cut in pieces])[order]
            for name in ("sample_id", "content", "step", "microbatch")
        )
        owner = np.concatenate(owners)[order]
        yield start, Rows(position[order], sample_id, content, step, microbatch, owner, *of_segment)


def _judge_rows(rows: Rows, expected: Expected, result: Coverage) -> None:
    result.wrong_step.add(rows, rows.step != rows.position // expected.global_batch)
    result.outside_segment.add(rows, _outside(rows))
    if expected.microbatches:
        result.wrong_microbatch.add(rows, rows.microbatch != expected.microbatch(rows.position))
    if expected.plan is not None:
        planned = np.full(len(rows.position), -1, np.int64)
        real = rows.position >= 0
        planned[real] = expected.plan(rows.position[real])
        result.wrong_sample.add(rows, real & (planned != rows.sample_id), expected.rows)
    size = len(expected.known)
    known = (rows.sample_id >= 0) & (rows.sample_id < size)
    known[known] = expected.known[rows.sample_id[known]]
    differs = np.zeros(len(known), np.bool_)
    differs[known] = expected.content[rows.sample_id[known]] != rows.content[known]
    result.wrong_content.add(rows, differs)
    result.unread += int(np.count_nonzero(~known))


def _outside(rows: Rows) -> npt.NDArray[np.bool_]:
    """Rows of an update or a microbatch that their segment does not cover."""
    first, last = rows.first_step[rows.owner], rows.last_step[rows.owner]
    begin, end = rows.first_microbatch[rows.owner], rows.microbatches[rows.owner]
    early = (rows.step < first) | ((rows.step == first) & (rows.microbatch < begin))
    late = (rows.step > last) | ((rows.step == last) & (end > 0) & (rows.microbatch >= end))
    result: npt.NDArray[np.bool_] = early | late
    return result


def _without(pieces: list[tuple[int, int]], first: int, end: int) -> list[tuple[int, int]]:
    """What is left of [begin, stop) pieces without [first, end)."""
    if first >= end:
        return pieces
    cut = [part for begin, stop in pieces for part in ((begin, min(stop, first)), (max(begin, end), stop))]
    return [(begin, stop) for begin, stop in cut if begin < stop]


def _note_gap(result: Coverage, expected: Expected, first: int, end: int) -> None:
    """Positions first … end − 1 have no row."""
    pieces = [(first, end)] if first < end else []
    for later_first, later_end in expected.to_come():
        pieces = _without(pieces, later_first, later_end)
    for lost_first, lost_end in expected.absent:
        kept = _without(pieces, lost_first, lost_end)
        result.uncertain += sum(b - a for a, b in pieces) - sum(b - a for a, b in kept)
        pieces = kept
    for begin, stop in pieces:
        result.never += stop - begin
        if result.first_gap is not None and result.first_gap[1] == begin - 1:
            result.first_gap = (result.first_gap[0], stop - 1)
        elif result.first_gap is None:
            result.first_gap = (begin, stop - 1)


def _note_repeats(result: Coverage, rows: Rows, counts: npt.NDArray[np.int64], start: int) -> None:
    often = np.flatnonzero(counts > 1)
    result.repeated += len(often)
    if not often.size or result.first_repeat is not None:
        return
    first = last = int(often[0]) + start
    spots = _spots_at(rows, first)
    who = [(spot.step, spot.attempt) for spot in spots]
    for position in (often[1:_LOOK] + start).tolist():
        if position != last + 1 or [(s.step, s.attempt) for s in _spots_at(rows, position)] != who:
            break
        last = position
    result.first_repeat = Repeat(first, last, spots)


def _spots_at(rows: Rows, position: int) -> tuple[Spot, ...]:
    begin, end = np.searchsorted(rows.position, [position, position + 1])
    return tuple(sorted(rows.spot(i) for i in range(int(begin), int(end))))


def _runs(values: I64) -> Iterator[tuple[int, int]]:
    """Runs of consecutive ascending integers, as (first, last)."""
    if not values.size:
        return
    breaks = np.flatnonzero(np.diff(values) != 1)
    firsts = np.concatenate(([0], breaks + 1))
    lasts = np.concatenate((breaks, [len(values) - 1]))
    yield from zip(values[firsts].tolist(), values[lasts].tolist(), strict=True)
