"""What each recovery cost, part by part (invariant 8): from what every process recorded where it happened. Pure.

Parts overlap, since ranks are not alike. An instant counts for the part furthest behind that some process was in, so
the parts add up; an instant at which no process said that it was in any of them is left unexplained.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from itertools import takewhile

from chaos.cost.clocks import Clocks
from chaos.cost.records import (
    Chosen,
    Detected,
    Fenced,
    Formed,
    Joined,
    Loaded,
    Opened,
    PipelineStarted,
    Preparing,
    Proposed,
    Restored,
    Resumed,
    SaveDue,
    Seen,
    Shape,
    StepDone,
    Struck,
    Training,
    Warmed,
    Witnessed,
)
from chaos.cost.redo import Redo, redone
from chaos.cost.shares import shared_out
from chaos.cost.values import Parts, Recovery, Standby

_NS = 1e9
# Furthest behind first: while anything is read nothing is chosen, and input that is waited for is no computing.
_DETECT, _FENCE, _REACQUIRE, _JOIN, _LOAD, _SELECT, _PIPELINE, _FIRST_STEP = range(8)
_Stretches = Iterator[tuple[int, float, float]]


@dataclass(frozen=True)
class _Instants:
    """On the reference clock, ns. begin: of the first new step, on the last rank; first: on any rank, it is done."""

    strike: float | None
    begin: float | None
    first: float | None
    caught_up: float | None


def recoveries(witnessed: Witnessed, clocks: Clocks) -> tuple[Recovery, ...]:
    """One for each attempt after the first."""
    shape = witnessed.shape
    if shape is None:
        return ()
    return tuple(_recovery(witnessed, clocks, shape, attempt) for attempt in witnessed.attempts if attempt > 0)


def _recovery(witnessed: Witnessed, clocks: Clocks, shape: Shape, attempt: int) -> Recovery:
    detection, strike = struck(witnessed, attempt)
    redo = redone(witnessed, shape, attempt, strike)
    at = _instants(witnessed, clocks, attempt, strike, redo)
    parts, unexplained = _parts(witnessed, clocks, shape, attempt, detection, at)
    return Recovery(
        attempt=attempt, restored_step=redo.restored, parts=parts, whole_s=_s(at.strike, at.first),
        unexplained_s=unexplained, downtime_s=_s(at.strike, at.begin), caught_up_s=_s(at.strike, at.caught_up),
        lost_s=_s(_moment_restored(witnessed, clocks, attempt), at.strike),
        redo_s=0.0 if redo.steps == 0 and at.begin is not None else _s(at.begin, at.caught_up), redo_steps=redo.steps,
        redo_microbatches=redo.microbatches, redo_samples=redo.samples, partial_microbatches=redo.partial,
        bytes_read=sum(event.what.bytes for event in witnessed.of(Loaded, attempt)),
        standby=_standby(witnessed, clocks, attempt, strike), uncertainty_s=clocks.uncertainty_s,
    )  # fmt: skip


def struck(witnessed: Witnessed, attempt: int) -> tuple[Seen | None, Struck | None]:
    """The detection that the attempt answers, and the first strike at a process that its detections name."""
    detections: list[Seen] = []
    own = next(iter(witnessed.of(Fenced, attempt)))
    for event in takewhile(lambda each: each is not own, witnessed.events):
        if event.file != own.file:
            continue
        if isinstance(event.what, Fenced):
            detections = []
        elif isinstance(event.what, (Detected, Resumed)):
            detections.append(event)
    gone = {(who.pid, who.start_ticks) for event in detections for who in _named(event.what)}
    at = [strike for strike in witnessed.strikes if (strike.pid, strike.start_ticks) in gone]
    at = [strike for strike in at if strike.attempt < attempt] or at
    first = min(at, key=lambda strike: strike.t_ns, default=None)
    return detections[0] if detections else None, first


def _named(what: Detected | Resumed) -> Iterable[Detected | Opened]:
    if isinstance(what, Detected):
        return [what]
    return [Opened(each.pid, each.start_ticks, "") for each in what.previous]


def _instants(w: Witnessed, clocks: Clocks, attempt: int, strike: Struck | None, redo: Redo) -> _Instants:
    firsts = first_steps(w, attempt)
    begins = [clocks.at(event.boot, event.t_ns - _length_ns(event.what)) for event in firsts]
    begin = _last(begins)
    reached = [clocks.seen(event) for event in w.of(StepDone, attempt) if event.what.step >= redo.greatest]
    return _Instants(
        None if strike is None else clocks.at(strike.boot, strike.t_ns),
        begin,
        _first(clocks.seen(event) for event in firsts),
        begin if redo.steps == 0 else _first(reached),
    )


def first_steps(witnessed: Witnessed, attempt: int) -> list[Seen]:
    """Of each rank, its first update in the attempt."""
    found: dict[int, Seen] = {}
    for event in witnessed.of(StepDone, attempt):
        found.setdefault(event.what.rank, event)
    return list(found.values())


def _length_ns(step: StepDone) -> int:
    return round((step.wait_s + step.train_s + step.fingerprint_s) * _NS)


def _parts(
    w: Witnessed, clocks: Clocks, shape: Shape, attempt: int, detection: Seen | None, at: _Instants
) -> tuple[Parts | None, float | None]:
    ready = {event.what.rank for event in w.of(PipelineStarted, attempt)}
    if at.strike is None or at.first is None or detection is None or len(ready) < shape.ranks:
        return None, None
    stretches = list(_stretches(w, clocks, attempt, detection, at.strike))
    each = shared_out(stretches, (at.strike, at.first))
    s = {kind: round(each.get(kind, 0.0) / _NS, 6) for kind in range(8)}
    parts = Parts(s[_DETECT], s[_FENCE], s[_REACQUIRE], s[_JOIN], s[_SELECT], s[_LOAD], s[_PIPELINE], s[_FIRST_STEP])
    return parts, round((at.first - at.strike) / _NS - sum(each.values()) / _NS, 6)


def _stretches(w: Witnessed, clocks: Clocks, attempt: int, detection: Seen, strike: float) -> _Stretches:
    """(part, start, end) of everything that some process says it was in."""
    detected, fenced = clocks.seen(detection), _last(map(clocks.seen, w.of(Fenced, attempt)))
    yield from _stretch(_DETECT, strike, detected)
    yield from _stretch(_FENCE, detected, fenced)
    yield from _acquired(w, clocks, attempt, fenced)
    for event in w.of(Joined, attempt):
        started = [each for each in w.of(Preparing, attempt) if each.what.rank == event.what.rank]
        yield from _stretch(_JOIN, _first(map(clocks.seen, started)), clocks.seen(event))
    formed, told = (_first(map(clocks.seen, w.of(kind, attempt))) for kind in (Formed, Training))
    yield from _stretch(_SELECT, _answered(w, clocks, attempt, formed), told)
    for event in w.of(Loaded, attempt):
        yield from _stretch(_LOAD, *_before(clocks, event, event.what.duration_s))
    yield from _restoring(w, clocks, attempt, told)


def _answered(w: Witnessed, clocks: Clocks, attempt: int, formed: float | None) -> float | None:
    """When the last rank said what the supervisor had by `formed`: from then on it is the supervisor who is awaited."""
    said = [clocks.seen(event) for kind in (Joined, Loaded) for event in w.of(kind, attempt)]
    before = [at for at in said if at is not None and formed is not None and at <= formed]
    return max(before, default=formed)


def _acquired(w: Witnessed, clocks: Clocks, attempt: int, fenced: float | None) -> _Stretches:
    """Until every rank has taken up its work, but for the time in which the supervisor looked for a candidate."""
    proposals = [_before(clocks, event, event.what.duration_s) for event in w.of(Proposed, attempt)]
    taken_up = _last(map(clocks.seen, w.of(Preparing, attempt)))
    if proposals:
        yield from _stretch(_REACQUIRE, fenced, proposals[0][0])
        yield from _stretch(_REACQUIRE, proposals[0][1], taken_up)
    for start, end in proposals:
        yield from _stretch(_SELECT, start, end)


def _restoring(w: Witnessed, clocks: Clocks, attempt: int, told: float | None) -> _Stretches:
    """On each rank: the state is built and restored, the input started, the first step done. told: to do so."""
    steps = {event.what.rank: event for event in first_steps(w, attempt)}
    restored = {event.what.rank: event for event in w.of(Restored, attempt)}
    for event in w.of(PipelineStarted, attempt):
        rank, (starting, started) = event.what.rank, _before(clocks, event, event.what.duration_s)
        yield from _stretch(_PIPELINE, starting, started)
        if rank in restored:
            restoring = _before(clocks, restored[rank], restored[rank].what.duration_s)[0]
            yield from _stretch(_LOAD, _first([told, restoring]) if restoring is not None else None, starting)
        if rank in steps:
            done, length = clocks.seen(steps[rank]), _length_ns(steps[rank].what)
            yield from _stretch(_FIRST_STEP, started, done)
            if done is not None:
                yield from _stretch(_PIPELINE, done - length, done - length + steps[rank].what.wait_s * _NS)


def _stretch(part: int, start: float | None, end: float | None) -> _Stretches:
    if start is not None and end is not None:
        yield part, start, end


def _before(clocks: Clocks, event: Seen, duration_s: float) -> tuple[float | None, float | None]:
    """Start and end of what took so long when the event was recorded."""
    end = clocks.seen(event)
    return (None, None) if end is None else (end - duration_s * _NS, end)


def _moment_restored(w: Witnessed, clocks: Clocks, attempt: int) -> float | None:
    """When the training stood where the attempt begins: at the save, or where the attempt before it began.

    None if that one had not begun to train: what is done again then was lost to an earlier failure, and counted there.
    """
    chosen, before = next(iter(w.of(Chosen, attempt)), None), attempt - 1
    if chosen is None:
        return None
    due = [event for event in w.of(SaveDue, before) if _name(event, before) == chosen.what.name]
    if due:
        return _last(map(clocks.seen, due))
    begun = [clocks.at(event.boot, event.t_ns - _length_ns(event.what)) for event in first_steps(w, before)]
    return _last(begun or map(clocks.seen, w.of(PipelineStarted, before)))


def _name(event: Seen, attempt: int) -> str:
    from storage.manifest import checkpoint_name

    return checkpoint_name(event.what.step, attempt, event.what.microbatch)


def _standby(w: Witnessed, clocks: Clocks, attempt: int, strike: Struck | None) -> Standby:
    """Whether who took the struck rank's place was warm by then."""
    taken = [event for event in w.of(Preparing, attempt) if strike is not None and event.what.rank == strike.rank]
    if not taken or strike is None:
        return "none"
    when = clocks.at(strike.boot, strike.t_ns)
    for kind, word in ((Warmed, "warm"), (Opened, "warming")):
        known = [clocks.seen(event) for event in w.of(kind) if event.file == taken[0].file]
        if any(at is not None and when is not None and at <= when for at in known):
            return "warm" if word == "warm" else "warming"
    return "none"


def _last(instants: Iterable[float | None]) -> float | None:
    """None if there is none, or if one of them is unknown."""
    found = list(instants)
    known = [at for at in found if at is not None]
    return max(known) if known and len(known) == len(found) else None


def _first(instants: Iterable[float | None]) -> float | None:
    return min((at for at in instants if at is not None), default=None)


def _s(start: float | None, end: float | None) -> float | None:
    return None if start is None or end is None else round((end - start) / _NS, 6)
