"""The arithmetic of invariant 3: which positions were applied how often, by which step, with which sample.

Pure, vectorised, in windows of positions: segments are sorted by position, so one window needs one slice of each,
and memory is bounded by the window, not by the run.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field

import numpy as np
import numpy.typing as npt

from chaos.audit.evidence import I64, U64, Segment

WINDOW = 1 << 17
_LOOK = 4096  # rows around a first fault that are looked at one by one


@dataclass(frozen=True)
class Expected:
    """What the rows ought to be. plan: positions → sample ids; content[id] counts where known[id] is true.

    rows: of the dataset, 0 if it is not known. absent: [first, end) of positions whose rows may be lost with
    their file, so that a gap there proves nothing.
    """

    cursor: int
    global_batch: int
    rows: int = 0
    plan: Callable[[I64], I64] | None = None
    content: U64 = field(default_factory=lambda: np.zeros(0, np.uint64))
    known: npt.NDArray[np.bool_] = field(default_factory=lambda: np.zeros(0, np.bool_))
    absent: tuple[tuple[int, int], ...] = ()


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
    owner: I64
    attempts: I64  # by segment
    first_step: I64
    last_step: I64

    def spot(self, index: int) -> Spot:
        owner = int(self.owner[index])
        return Spot(
            int(self.step[index]), int(self.position[index]), int(self.sample_id[index]),
            int(self.attempts[owner]), owner,
        )  # fmt: skip


def cover(segments: Sequence[Segment], expected: Expected, window: int = WINDOW) -> Coverage:
    """Compares all rows of the lineage's segments with what they ought to be."""
    result = Coverage()
    epochs = _Epochs(expected.rows)
    end = 0  # positions below it are accounted for
    for start, rows in _windows(segments, window, expected.cursor):
        inside = (rows.position >= 0) & (rows.position < expected.cursor)
        result.beyond.add(rows, ~inside)
        _judge_rows(rows, expected, result)
        if start < 0 or start >= expected.cursor:
            continue
        _note_gap(result, expected, end, start)
        end = min(start + window, expected.cursor)
        counts = np.bincount(rows.position[inside] - start, minlength=end - start)
        for first, last in _runs(np.flatnonzero(counts == 0) + start):
            _note_gap(result, expected, first, last + 1)
        _note_repeats(result, rows, counts, start)
        epochs.take(rows.position[inside], rows.sample_id[inside])
    _note_gap(result, expected, end, expected.cursor)
    if not (result.repeated or result.never or result.uncertain):
        result.epoch_faults = epochs.faults(expected.cursor)
    return result


def _windows(segments: Sequence[Segment], window: int, cursor: int) -> Iterator[tuple[int, Rows]]:
    """Windows of positions that hold any row, ascending, each [start, start + window) and cut at 0 and cursor."""
    attempts = np.array([segment.meta.attempt for segment in segments], np.int64)
    first_step = np.array([segment.meta.first_step for segment in segments], np.int64)
    last_step = np.array([segment.meta.last_step for segment in segments], np.int64)
    places = [0] * len(segments)
    while True:
        waiting = [i for i, segment in enumerate(segments) if places[i] < len(segment.position)]
        if not waiting:
            return
        start = min(int(segments[i].position[places[i]]) for i in waiting)
        limit = start + window
        for cut in (0, cursor):
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
        sample_id, content, step = (
            np.concatenate([getattr(segment, name)[cut] for segment, cut in pieces])[order]
            for name in ("sample_id", "content", "step")
        )
        owner = np.concatenate(owners)[order]
        yield (
            start,
            Rows(position[order], sample_id, content, step, owner, attempts, first_step, last_step),
        )


def _judge_rows(rows: Rows, expected: Expected, result: Coverage) -> None:
    result.wrong_step.add(rows, rows.step != rows.position // expected.global_batch)
    late = rows.step > rows.last_step[rows.owner]
    result.outside_segment.add(rows, late | (rows.step < rows.first_step[rows.owner]))
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


def _note_gap(result: Coverage, expected: Expected, first: int, end: int) -> None:
    """Positions first … end − 1 have no row."""
    pieces = [(first, end)] if first < end else []
    for lost_first, lost_end in expected.absent:
        if lost_first >= lost_end:
            continue
        kept = []
        for begin, stop in pieces:
            kept += [(begin, min(stop, lost_first)), (max(begin, lost_end), stop)]
        kept = [(begin, stop) for begin, stop in kept if begin < stop]
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


class _Epochs:
    """Whether each finished epoch has every sample once, by the ids alone, whatever the plan says."""

    def __init__(self, rows: int) -> None:
        self._rows = rows
        self._seen = np.zeros(rows, np.bool_)
        self._epoch = 0
        self._faults: dict[int, str] = {}

    def take(self, position: I64, sample_id: I64) -> None:
        """Rows in order of position, each position once in all."""
        if not self._rows:
            return
        epochs = position // self._rows
        for epoch in np.unique(epochs).tolist():
            if epoch != self._epoch:
                self._seen[:] = False
                self._epoch = epoch
            distinct, times = np.unique(sample_id[epochs == epoch], return_counts=True)
            real = (distinct >= 0) & (distinct < self._rows)
            for alien in distinct[~real][:1].tolist():
                self._faults.setdefault(epoch, f"epoch {epoch} holds sample {alien}, which the dataset lacks")
            distinct, times = distinct[real], times[real]
            for again in distinct[(times > 1) | self._seen[distinct]][:1].tolist():
                self._faults.setdefault(epoch, f"epoch {epoch} holds sample {again} more than once")
            self._seen[distinct] = True

    def faults(self, cursor: int) -> list[str]:
        """Of epochs that are finished: a sample that comes twice means, by counting, that another is missing."""
        return [text for epoch, text in sorted(self._faults.items()) if (epoch + 1) * self._rows <= cursor]
