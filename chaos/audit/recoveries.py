"""What each recovery cost, from instants of one boot: detect, reacquire, load, redo, and time to the first new step.

Instants of two boots do not compare; a duration that would need them is None, as is one whose end never came.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

import numpy as np

from chaos.audit.deaths import identity
from chaos.audit.events import Detected, Event, Fenced, Formed, Joined, Restored, Resumed, SaveDue
from chaos.audit.evidence import Evidence, Moment
from chaos.audit.facts import Receipt, RunBegun
from chaos.audit.logbook import Attempt, attempts
from chaos.audit.redo import greatest_update, restored_moment
from chaos.audit.witnesses import boot, events, instant, steps, steps_by_attempt

_Instant = tuple[str | None, int]


@dataclass(frozen=True)
class Recovery:
    """Durations in seconds. redo_steps: updates finished before the failure that were not in what was restored.

    restored_microbatch: of the next update, in what was restored; redo_samples leaves them out. redo_microbatches: of
    the update that was not finished, as far as saves between them tell; None where the run makes none.
    detect_s: strike to detection. reacquire_s: to the last rank's joining. load_s: to the last rank's restore.
    redo_s: to the first rank's having caught up. first_step_s: strike to the first new update done.
    """

    attempt: int
    restored_step: int | None
    detect_s: float | None
    reacquire_s: float | None
    load_s: float | None
    redo_s: float | None
    first_step_s: float | None
    redo_steps: int | None
    redo_samples: int | None
    restored_microbatch: int = 0
    redo_microbatches: int | None = None


def recoveries(evidence: Evidence) -> tuple[Recovery, ...]:
    """One for each attempt after the first."""
    lives, done = attempts(evidence.store.log.entries), steps_by_attempt(evidence)
    return tuple(
        _recovery(evidence, life, greatest_update(done, number))
        for number, life in sorted(lives.items())
        if number > 0
    )


def _recovery(evidence: Evidence, life: Attempt, greatest: int) -> Recovery:
    """greatest: update that had been finished before."""
    attempt = life.number
    restored, inside = restored_moment(life) if life.choose is not None else (None, 0)
    redo = None if restored is None else max(0, greatest - restored)
    detection = _detection(evidence, life.fence.seq)
    strike = _strike(evidence, attempt, detection)
    detected = None if detection is None else instant(evidence, detection)
    joined = _last(evidence, Joined, attempt) or _last(evidence, Formed, attempt)
    loaded = _last(evidence, Restored, attempt)
    first_step = _first_step(evidence, attempt, 0)
    caught_up = _first_step(evidence, attempt, greatest)
    begun = evidence.begun
    return Recovery(
        attempt,
        restored,
        _seconds(strike, detected),
        _seconds(detected, joined),
        _seconds(joined, loaded),
        0.0 if redo == 0 and loaded is not None else _seconds(loaded, caught_up),
        _seconds(strike, first_step),
        redo,
        None if redo is None or begun is None else _samples(begun, redo, inside),
        inside,
        None if begun is None or restored is None else _unfinished(evidence, begun, attempt, (restored, inside)),
    )


def _samples(begun: RunBegun, redo: int, inside: int) -> int:
    """Of the updates that are redone, those that the restored partial gradients do not hold already."""
    return max(0, redo * begun.global_batch - inside * (begun.global_batch // begun.microbatches))


def _unfinished(evidence: Evidence, begun: RunBegun, attempt: int, restored: Moment) -> int | None:
    """Microbatches of the update that was under way, after which a save fell due and which are to be done again."""
    if begun.save_every_microbatches is None:
        return None
    due = [event for event in events(evidence, SaveDue) if event.attempt is not None and event.attempt < attempt]
    last = max((event.attempt for event in due if event.attempt is not None), default=0)
    reached = max((event.what.step for event in due if event.attempt == last), default=0)
    reached = max([reached, *steps_by_attempt(evidence).get(last, {}).values()])
    inside = [event.what.microbatch for event in due if event.attempt == last and event.what.step == reached]
    return max(0, max(inside, default=0) - (restored[1] if restored[0] == reached else 0))


def _detection(evidence: Evidence, fence_seq: int) -> Event[Detected] | Event[Resumed] | None:
    """The first detection after the last fence before this one, in the file of the supervisor that fenced."""
    for file in evidence.history.files.values():
        found: Event[Detected] | Event[Resumed] | None = None
        for event in file.events:
            if isinstance(event.what, (Detected, Resumed)):
                found = found or event
            elif isinstance(event.what, Fenced) and event.what.seq == fence_seq:
                return found
            elif isinstance(event.what, Fenced):
                found = None
    return None


def _strike(
    evidence: Evidence, attempt: int, detection: Event[Detected] | Event[Resumed] | None
) -> _Instant | None:
    """When the fault struck that this recovery answers: the first one that its detections name."""
    if detection is None:
        return None
    what = detection.what
    gone: set[tuple[int | None, int | None]] = set()
    if isinstance(what, Resumed):
        gone = {(previous.pid, previous.start_ticks) for previous in what.previous}
    if isinstance(what, Detected):
        gone = {
            (event.what.pid, event.what.start_ticks)
            for event in events(evidence, Detected)
            if event.file == detection.file and event.attempt == detection.attempt and event.n >= detection.n
        }
    struck: list[Receipt] = [
        r for r in evidence.history.receipts if r.lethal and identity(r) in gone and r.attempt < attempt
    ]
    struck = struck or [r for r in evidence.history.receipts if r.lethal and identity(r) in gone]
    return min(((r.boot, r.t_ns) for r in struck), key=lambda at: at[1], default=None)


def _last(
    evidence: Evidence, kind: type[Joined] | type[Formed] | type[Restored], attempt: int
) -> _Instant | None:
    return _latest(instant(evidence, event) for event in events(evidence, kind) if event.attempt == attempt)


def _latest(instants: Iterable[_Instant]) -> _Instant | None:
    """None if there is none, or if they are of several boots."""
    found = list(instants)
    return max(found, key=lambda at: at[1]) if found and len({boot for boot, _ in found}) == 1 else None


def _first_step(evidence: Evidence, attempt: int, least: int) -> _Instant | None:
    """When the attempt first had done an update, of at least number `least`."""
    done = steps(evidence)
    found = np.flatnonzero((done.attempt == attempt) & (done.step >= least))
    boots = {boot(evidence, file) for file in done.files(found)}
    return (boots.pop(), int(done.t_ns[found].min())) if len(boots) == 1 else None


def _seconds(start: _Instant | None, end: _Instant | None) -> float | None:
    if start is None or end is None or start[0] is None or start[0] != end[0]:
        return None
    return round((end[1] - start[1]) / 1e9, 6)
