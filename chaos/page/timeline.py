"""The timeline: every rank's updates, saves, and what struck it, over all attempts. Pure: evidence in, values out."""

from __future__ import annotations

import heapq
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from chaos.audit.events import Detected, Event, Fenced, Finished, Published, Restored, SaveDue, SaveStaged, StepDone
from chaos.audit.evidence import Evidence
from chaos.audit.logbook import attempts, started_from
from chaos.audit.recoveries import Recovery
from chaos.audit.witnesses import boot, events, steps_by_attempt
from chaos.cost.clocks import Clocks
from chaos.page.clock import Clock, clock_of
from chaos.page.measured import Measured, StepMeasured
from chaos.page.values import (
    Happening,
    Mark,
    Microbatches,
    Part,
    Phase,
    RankLane,
    Saves,
    Stretches,
    Timeline,
)
from chaos.report import who

_NOTHING = StepMeasured(None, None, None, ())


@dataclass(frozen=True)
class Update:
    """One update of one rank, in time."""

    event: Event[StepDone]
    measured: StepMeasured
    start_ns: int


def updates(evidence: Evidence, measured: Measured) -> tuple[Update, ...]:
    """Every recorded one. Where its duration was not recorded it begins where what came before it ended."""
    before: dict[str, int] = {}
    found = []
    for event in _steps_and_restores(evidence):
        if isinstance(event.what, StepDone):
            what = measured.steps.get((event.file, event.n), _NOTHING)
            start = before.get(event.file, event.t_ns)
            if what.wait_s is not None and what.train_s is not None:
                start = max(start, event.t_ns - round((what.wait_s + what.train_s) * 1e9))
            found.append(Update(event, what, start))
        before[event.file] = event.t_ns
    return tuple(found)


def run_clock(evidence: Evidence, done: Sequence[Update], hosts: Clocks | None = None) -> Clock:
    """The run's axis of time. hosts: how the clocks of several compare."""
    first: dict[str, int] = {}
    for update in done:
        first.setdefault(update.event.file, update.start_ns)
    return clock_of(evidence, first, hosts)


def timeline(
    evidence: Evidence, measured: Measured, clock: Clock, done: Sequence[Update], recoveries: Sequence[Recovery]
) -> Timeline:
    """done: from `updates`. recoveries: from the verdict."""
    ranks = sorted({update.event.what.rank for update in done})
    steps = {rank: [update for update in done if update.event.what.rank == rank] for rank in ranks}
    saves = _saves(evidence, measured, clock)
    lanes = tuple(_lane(evidence, clock, rank, steps[rank], saves.get(rank, Saves())) for rank in ranks)
    phases = tuple(_phases(evidence, clock, recoveries))
    marks = tuple(sorted(_marks(evidence, clock), key=lambda mark: mark.at_us))
    end = max([clock.end_us, *(phase.end_us for phase in phases)])
    return Timeline(end, lanes, phases, marks, clock.axes, clock.uncertainty_s)


def kept_upto(evidence: Evidence) -> dict[int, float]:
    """attempt → the last of its updates that the run's final state descends from; −1 for none of them."""
    entries = evidence.store.log.entries
    lives = attempts(entries)
    kept: dict[int, float] = dict.fromkeys(lives, -1.0)
    limit, number = float("inf"), max(lives, default=None)
    while number is not None:
        life = lives[number]
        kept[number] = limit
        if life.choose is None:  # it died before it chose: what it left is what the one before it left
            kept[number] = -1.0
            number = max((n for n in lives if n < number), default=None)
            continue
        origin = started_from(entries, number)
        number, limit = (None, -1.0) if origin is None else (origin.attempt, float(origin.step))
    return kept


def greatest_before(evidence: Evidence) -> dict[int, int]:
    """attempt → greatest update that any rank had finished in any attempt before it."""
    done = steps_by_attempt(evidence)
    found, greatest = {}, 0
    for number in range(max([*done, *attempts(evidence.store.log.entries)], default=-1) + 1):
        found[number] = greatest
        greatest = max([greatest, *done.get(number, {}).values()])
    return found


def _steps_and_restores(evidence: Evidence) -> Iterator[Event[StepDone] | Event[Restored]]:
    """File by file, each in its own order."""
    for file in evidence.history.files.values():
        restores = (event for event in file.events if isinstance(event.what, Restored))
        for event in heapq.merge(restores, file.steps, key=lambda each: each.n):  # steps are kept apart, in columns
            if event.attempt is not None:
                yield event


def _lane(evidence: Evidence, clock: Clock, rank: int, done: Sequence[Update], saves: Saves) -> RankLane:
    kept, before = kept_upto(evidence), greatest_before(evidence)
    rows, ends, owners = [], [], []
    for update in done:
        name, what, attempt = boot(evidence, update.event.file), update.event.what, update.event.attempt or 0
        start, end = clock.us(name, update.start_ns), clock.us(name, update.event.t_ns)
        if start is None or end is None:
            continue
        wait = -1 if update.measured.wait_s is None else round(update.measured.wait_s * 1e6)
        rows.append((
            start, end, what.step, what.step, attempt, 1, int(what.step <= before.get(attempt, 0)),
            int(what.step > kept.get(attempt, -1.0)), wait, update.measured.microbatch_s,
        ))  # fmt: skip
    rows.sort(key=lambda row: (row[0], row[1]))
    for number, row in enumerate(rows):
        ends += [row[0] + round(end_s * 1e6) for end_s in row[-1]]
        owners += [number] * len(row[-1])
    columns = np.array([row[:-1] for row in rows], np.int64).reshape(len(rows), 9).T
    return RankLane(
        rank, Stretches(*columns), saves, Microbatches(np.array(ends, np.int64), np.array(owners, np.int64))
    )


def _saves(evidence: Evidence, measured: Measured, clock: Clock) -> dict[int, Saves]:
    """By rank."""
    found: dict[tuple[int, int, int, int], list[int]] = {}  # attempt, rank, step, microbatch → the four instants
    for event in events(evidence, SaveDue):
        at = clock.us(boot(evidence, event.file), event.t_ns)
        if at is not None and event.attempt is not None:
            found[event.attempt, event.what.rank, event.what.step, event.what.microbatch] = [at, -1, -1, -1]
    later: list[tuple[int, tuple[int | None, int, int, int], str, int]] = [
        (1, (e.attempt, e.what.rank, e.what.step, e.what.microbatch), e.file, e.t_ns)
        for e in events(evidence, SaveStaged)
    ]
    later += [(2, (w.attempt, w.rank, w.step, w.microbatch), w.file, w.t_ns) for w in measured.written]
    for place, key, file, t_ns in later:
        at = clock.us(boot(evidence, file), t_ns)
        if at is not None and key in found:
            found[key][place] = at
    published = _published(evidence, clock)
    rows: dict[int, list[tuple[int, ...]]] = {}
    for (attempt, rank, step, microbatch), (due, staged, written, _) in found.items():
        last = published.get((attempt, step, microbatch), -1)
        rows.setdefault(rank, []).append((due, staged, written, last, step, attempt))
    return {
        rank: Saves(*np.array(sorted(mine), np.int64).reshape(len(mine), 6).T) for rank, mine in sorted(rows.items())
    }


def _published(evidence: Evidence, clock: Clock) -> Mapping[tuple[int, int, int], int]:
    """(attempt, step, microbatch) → when."""
    found = {}
    entries = {(e.attempt, e.name): e.moment for life in attempts(evidence.store.log.entries).values()
               for e in life.published}  # fmt: skip
    for event in events(evidence, Published):
        at, moment = (
            clock.us(boot(evidence, event.file), event.t_ns),
            entries.get((event.attempt or 0, event.what.name)),
        )
        if at is not None and moment is not None:
            found[event.attempt or 0, *moment] = at
    return found


def _phases(evidence: Evidence, clock: Clock, recoveries: Sequence[Recovery]) -> Iterator[Phase]:
    """From durations back to instants: all of them meet at the last rank's restore."""
    for recovery in recoveries:
        restored = [e for e in events(evidence, Restored) if e.attempt == recovery.attempt]
        ats = [clock.us(boot(evidence, e.file), e.t_ns) for e in restored]
        known = [at for at in ats if at is not None]
        if not known:
            continue
        at = max(known)
        if recovery.redo_s:
            yield Phase(recovery.attempt, Part.REDO, at, at + round(recovery.redo_s * 1e6))
        before = (
            (Part.LOAD, recovery.load_s),
            (Part.REACQUIRE, recovery.reacquire_s),
            (Part.DETECT, recovery.detect_s),
        )
        for part, seconds in before:
            if seconds is None:
                break
            yield Phase(recovery.attempt, part, at - round(seconds * 1e6), at)
            at -= round(seconds * 1e6)


def _marks(evidence: Evidence, clock: Clock) -> Iterator[Mark]:
    for receipt in evidence.history.receipts:
        at = clock.us(receipt.boot, receipt.t_ns)
        if at is not None:
            where = f"at {receipt.point}, hit {receipt.hit}" if receipt.point else "at a planned time"
            name = who(receipt.role, receipt.rank)
            yield Mark(Happening.KILL, at, receipt.attempt, receipt.rank, name, f"{receipt.kind} of {name} {where}")
    for event in events(evidence, Detected):
        name = who(event.what.role, event.what.rank)
        yield from _mark(evidence, clock, event, Happening.DETECTED, name,
                         f"{name}: {event.what.how.replace('_', ' ')}",
                         event.what.rank)  # fmt: skip
    for fence in events(evidence, Fenced):
        yield from _mark(evidence, clock, fence, Happening.FENCE, "supervisor", f"attempt {fence.attempt} begins")
    for published in events(evidence, Published):
        yield from _mark(
            evidence, clock, published, Happening.PUBLISHED, "committer", f"{published.what.name} published"
        )
    for finished in events(evidence, Finished):
        yield from _mark(evidence, clock, finished, Happening.FINISHED, "supervisor",
                         f"step {finished.what.step} reached")  # fmt: skip


def _mark(
    evidence: Evidence,
    clock: Clock,
    event: Event[object],
    kind: Happening,
    name: str,
    text: str,
    rank: int | None = None,
) -> Iterator[Mark]:
    at = clock.us(boot(evidence, event.file), event.t_ns)
    if at is not None:
        yield Mark(kind, at, event.attempt or 0, rank, name, text)
