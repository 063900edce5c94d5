"""The arithmetic of invariant 3: which positions were applied how often, by which step, with which sample.

Pure, vectorised, in windows of positions: segments are sorted by position, so one window needs one slice of each,
and memory is bounded by the window, not by the run. What a window's rows ought to hold is computed once for each of
its positions and looked up row by row.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field

import numpy as np
import numpy.typing as npt

from chaos.audit.epochs import Epochs
from chaos.audit.evidence import I64, Segment
from chaos.audit.heap import keep_freed
from chaos.audit.ideal import Expected as Expected
from chaos.audit.ideal import Ideals
from chaos.audit.plan_ahead import PlanAhead
from chaos.audit.windows import Rows, windows
from chaos.audit.windows import Spot as Spot

WINDOW = 1 << 16
_LOOK = 4096  # rows around a first fault that are looked at one by one


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


def cover(
    segments: Sequence[Segment], expected: Expected, window: int = WINDOW, ahead: PlanAhead | None = None
) -> Coverage:
    """Compares all rows of the lineage's segments with what they ought to be. ahead: of the plan in `expected`."""
    keep_freed()
    result = Coverage()
    epochs = Epochs(expected.rows)
    end = 0  # positions below it are accounted for
    ideals = Ideals(expected, window, ahead)
    for start, limit, pieces in windows(segments, window, (0, expected.cursor, expected.end)):
        ideals.turn(start, limit, sum(rows.part.rows for rows in pieces))
        for rows in pieces:
            _judge(rows, ideals, start, result)
        if start < 0 or start >= expected.end:
            continue
        _note_gap(result, expected, end, start)
        end = limit
        counts = np.zeros(limit - start, np.int64)
        kept = [_inside(rows, expected, start, result) for rows in pieces]
        for position, _ in kept:
            counts += np.bincount(position - start, minlength=limit - start)
        for first, last in _runs(np.flatnonzero(counts == 0) + start):
            _note_gap(result, expected, first, last + 1)
        _note_repeats(result, pieces, counts, start)
        epochs.take(kept)
    _note_gap(result, expected, end, expected.end)
    if not (result.repeated or result.never or result.uncertain):
        result.epoch_faults = epochs.faults(expected.cursor)
    return result


def _inside(rows: Rows, expected: Expected, start: int, result: Coverage) -> tuple[I64, I64]:
    """Positions and sample ids of the rows whose positions had to be consumed. start: of the window, in 0 … end."""
    if start < expected.cursor:  # where the window ends too
        return rows.position, rows.sample_id
    mask = expected.consumed(rows.position)
    return rows.position[mask], rows.sample_id[mask]


def _judge(rows: Rows, ideals: Ideals, start: int, result: Coverage) -> None:
    """start: of the window."""
    expected = ideals.expected
    if not 0 <= start < expected.cursor:
        result.beyond.add(rows, ~expected.consumed(rows.position))
    ideal = ideals.at(rows.position)
    result.wrong_step.add(rows, rows.step != ideal.step)
    _judge_segment(rows, result)
    if ideal.microbatch is not None:
        result.wrong_microbatch.add(rows, rows.part.microbatch != ideal.microbatch)
    if ideal.sample_id is not None:
        wrong = ideal.sample_id != rows.sample_id
        if wrong.any():
            result.wrong_sample.add(rows, wrong & (rows.position >= 0), expected.rows)
    _judge_content(rows, expected, ideals.all_known, result)


def _judge_content(rows: Rows, expected: Expected, all_known: bool, result: Coverage) -> None:
    ids, size = rows.sample_id, len(expected.known)
    if all_known and size and ids.min() >= 0 and ids.max() < size:
        result.wrong_content.add(rows, expected.content.take(ids, mode="wrap") != rows.part.content)
        return
    known = (ids >= 0) & (ids < size)
    known[known] = expected.known[ids[known]]
    differs = np.zeros(len(known), np.bool_)
    differs[known] = expected.content[ids[known]] != rows.part.content[known]
    result.wrong_content.add(rows, differs)
    result.unread += int(np.count_nonzero(~known))


def _judge_segment(rows: Rows, result: Coverage) -> None:
    """Rows of an update or a microbatch that their segment does not cover."""
    meta = rows.meta
    inside = meta.first_step <= rows.step.min() and rows.step.max() <= meta.last_step
    if inside and not (meta.first_microbatch or meta.microbatch):
        return
    early = (rows.step < meta.first_step) | (
        (rows.step == meta.first_step) & (rows.part.microbatch < meta.first_microbatch)
    )
    late = rows.step > meta.last_step
    if meta.microbatch > 0:
        late |= (rows.step == meta.last_step) & (rows.part.microbatch >= meta.microbatch)
    result.outside_segment.add(rows, early | late)


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


def _note_repeats(result: Coverage, pieces: Sequence[Rows], counts: I64, start: int) -> None:
    """Counts repeats; the first stretch of them goes on where the window before ended, if the same applied it."""
    often = np.flatnonzero(counts > 1)
    result.repeated += len(often)
    if not often.size:
        return
    told = result.first_repeat
    often = often[:_LOOK] + start
    spots = _spots_at(pieces, int(often[0])) if told is None else told.spots
    first = int(often[0]) if told is None else told.first
    last = first - 1 if told is None else told.last
    who = [(spot.step, spot.attempt) for spot in spots]
    for position in often.tolist():
        if position != last + 1 or [(s.step, s.attempt) for s in _spots_at(pieces, position)] != who:
            break
        last = position
    result.first_repeat = Repeat(first, last, spots)


def _spots_at(pieces: Sequence[Rows], position: int) -> tuple[Spot, ...]:
    found: list[Spot] = []
    for rows in pieces:
        begin, end = np.searchsorted(rows.position, [position, position + 1])
        found += (rows.spot(i) for i in range(int(begin), int(end)))
    return tuple(sorted(found))


def _runs(values: I64) -> Iterator[tuple[int, int]]:
    """Runs of consecutive ascending integers, as (first, last)."""
    if not values.size:
        return
    breaks = np.flatnonzero(np.diff(values) != 1)
    firsts = np.concatenate(([0], breaks + 1))
    lasts = np.concatenate((breaks, [len(values) - 1]))
    yield from zip(values[firsts].tolist(), values[lasts].tolist(), strict=True)
