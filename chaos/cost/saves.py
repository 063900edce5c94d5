"""What each save cost, and each step with a save beside it. Pure."""

from __future__ import annotations

import itertools
from bisect import bisect_left, bisect_right
from collections import defaultdict
from collections.abc import Iterator, Sequence

from chaos.cost.clocks import Clocks
from chaos.cost.records import (
    Opened,
    Published,
    SaveDue,
    SaveStaged,
    SaveWritten,
    Seen,
    StepDone,
    Warmed,
    Witnessed,
)
from chaos.cost.shares import Stretch, covered
from chaos.cost.values import Save, Step
from storage.manifest import checkpoint_name

_NS = 1e9
_FOREVER = float("inf")
_Moment = tuple[int, int, int]  # attempt, step, microbatch


def saves(witnessed: Witnessed, clocks: Clocks) -> tuple[Save, ...]:
    """One for each checkpoint that every rank has staged, in order."""
    shape = witnessed.shape
    staged, written = _by_moment(witnessed, SaveStaged), _by_moment(witnessed, SaveWritten)
    published = {event.what.name: clocks.seen(event) for event in witnessed.of(Published)}
    found = []
    for moment, copies in sorted(staged.items()):
        if shape is None or len(copies) < shape.ranks:
            continue
        files = written.get(moment, [])
        whole = len(files) == shape.ranks
        copied = [clocks.seen(each) for each in copies]
        done = published.get(_name(moment))
        known = done is not None and None not in copied
        found.append(Save(
            *moment,
            stall_s=max(each.what.stall_s for each in copies),
            wait_s=max(each.what.waited_s for each in copies),
            write_s=max(each.what.duration_s for each in files) if whole else None,
            background_s=round((done - max(at for at in copied if at is not None)) / _NS, 6)
            if known and done is not None else None,
            bytes=sum(each.what.bytes for each in files) if whole else None,
        ))  # fmt: skip
    return tuple(found)


def steps(witnessed: Witnessed, clocks: Clocks) -> tuple[Step, ...]:
    """Every update but the first of each attempt, which follows no other."""
    flights, starts = _in_flight(witnessed, clocks), list(_starting(witnessed, clocks))
    found = []
    for (attempt, rank), done in sorted(_by_rank(witnessed).items()):
        blocked, flying = _blocked(witnessed, clocks, attempt, rank), flights.get(attempt, [])
        for before, event in itertools.pairwise(done):
            begin, end = clocks.seen(before), clocks.seen(event)
            if begin is None or end is None or end <= begin:
                continue
            stretch = (begin, end)
            running = end - begin - covered(_near(blocked, stretch), stretch)
            beside = min(running, covered(_near(flying, stretch), stretch))
            found.append(Step(
                attempt, rank, event.what.step, round(running / _NS, 6), round(beside / running, 4),
                recovering=covered(starts, stretch) > 0,
            ))  # fmt: skip
    return tuple(found)


def _near(stretches: Sequence[Stretch], stretch: Stretch) -> Sequence[Stretch]:
    """Of stretches in order, of which no two neighbours lie in one another, those that may meet this one."""
    first = bisect_left(stretches, stretch[0], key=lambda each: each[1])
    return stretches[first : bisect_right(stretches, stretch[1], key=lambda each: each[0])]


def _by_moment(witnessed: Witnessed, kind: type) -> dict[_Moment, list[Seen]]:
    found: dict[_Moment, list[Seen]] = defaultdict(list)
    for event in witnessed.of(kind):
        if event.attempt is not None:
            found[event.attempt, event.what.step, event.what.microbatch].append(event)
    return found


def _by_rank(witnessed: Witnessed) -> dict[tuple[int, int], list[Seen]]:
    found: dict[tuple[int, int], list[Seen]] = defaultdict(list)
    for event in witnessed.of(StepDone):
        if event.attempt is not None:
            found[event.attempt, event.what.rank].append(event)
    return found


def _name(moment: _Moment) -> str:
    attempt, step, microbatch = moment
    return checkpoint_name(step, attempt, microbatch)


def _blocked(witnessed: Witnessed, clocks: Clocks, attempt: int, rank: int) -> list[Stretch]:
    """When the rank waited for a save and copied for the next: no step's time."""
    due = {_where(e): clocks.seen(e) for e in witnessed.of(SaveDue, attempt) if e.what.rank == rank}
    staged = {_where(e): clocks.seen(e) for e in witnessed.of(SaveStaged, attempt) if e.what.rank == rank}
    found = []
    for where, begin in due.items():
        end = staged.get(where)
        if begin is not None and end is not None:
            found.append((begin, end))
    return sorted(found)


def _where(event: Seen) -> tuple[int, int]:
    return event.what.step, event.what.microbatch


def _in_flight(witnessed: Witnessed, clocks: Clocks) -> dict[int, list[Stretch]]:
    """attempt → from the first rank's copy to publication, or for ever; in order."""
    published = {event.what.name: clocks.seen(event) for event in witnessed.of(Published)}
    found: dict[int, list[Stretch]] = defaultdict(list)
    for moment, copies in sorted(_by_moment(witnessed, SaveStaged).items()):
        known = [at for at in map(clocks.seen, copies) if at is not None]
        if known:
            done = published.get(_name(moment))
            found[moment[0]].append((min(known), _FOREVER if done is None else done))
    return found


def _starting(witnessed: Witnessed, clocks: Clocks) -> Iterator[Stretch]:
    """While a new standby was being started and warmed: from the first new step of the attempt in which it came up."""
    firsts: dict[int, float] = {}
    for event in witnessed.of(StepDone):
        at = clocks.seen(event)
        if at is not None and event.attempt:
            firsts[event.attempt] = min(at, firsts.get(event.attempt, at))
    warm = {event.file: clocks.seen(event) for event in witnessed.of(Warmed)}
    for event in witnessed.of(Opened):
        at = clocks.seen(event)
        began = [first for first in firsts.values() if at is not None and first <= at]
        if began and event.file.startswith("worker-"):
            yield max(began), warm.get(event.file) or _FOREVER
