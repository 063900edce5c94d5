"""What each recovery cost, from instants of one boot: detect, reacquire, load, redo, and time to the first new step.

Instants of two boots do not compare; a duration that would need them is None, as is one whose end never came.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from chaos.audit.deaths import identity
from chaos.audit.events import Detected, Event, Fenced, Formed, Joined, Restored, Resumed, StepDone
from chaos.audit.evidence import Evidence
from chaos.audit.facts import Receipt
from chaos.audit.logbook import attempts
from chaos.audit.redo import greatest_update, restored_step
from chaos.audit.witnesses import events, instant, steps_by_attempt

_Instant = tuple[str | None, int]


@dataclass(frozen=True)
class Recovery:
    """Durations in seconds. redo_steps: updates finished before the failure that were not in what was restored.

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


def recoveries(evidence: Evidence) -> tuple[Recovery, ...]:
    """One for each attempt after the first."""
    lives = attempts(evidence.store.log.entries)
    return tuple(_recovery(evidence, number) for number in sorted(lives) if number > 0)


def _recovery(evidence: Evidence, attempt: int) -> Recovery:
    life = attempts(evidence.store.log.entries)[attempt]
    greatest = greatest_update(steps_by_attempt(evidence), attempt)
    restored = restored_step(life) if life.choose is not None else None
    redo = None if restored is None else max(0, greatest - restored)
    detection = _detection(evidence, attempt)
    strike = _strike(evidence, attempt, detection)
    detected = None if detection is None else instant(evidence, detection)
    joined = _last(evidence, Joined, attempt) or _last(evidence, Formed, attempt)
    loaded = _last(evidence, Restored, attempt)
    first_step = _first_step(evidence, attempt, 0)
    caught_up = _first_step(evidence, attempt, greatest)
    batch = None if evidence.begun is None else evidence.begun.global_batch
    return Recovery(
        attempt,
        restored,
        _seconds(strike, detected),
        _seconds(detected, joined),
        _seconds(joined, loaded),
        0.0 if redo == 0 and loaded is not None else _seconds(loaded, caught_up),
        _seconds(strike, first_step),
        redo,
        None if redo is None or batch is None else redo * batch,
    )


def _detection(evidence: Evidence, attempt: int) -> Event[Detected] | Event[Resumed] | None:
    """The first detection after the last fence before this attempt's, in the file of the supervisor that fenced."""
    for file in evidence.history.files.values():
        found: Event[Detected] | Event[Resumed] | None = None
        for event in file.events:
            if isinstance(event.what, (Detected, Resumed)):
                found = found or event
            elif isinstance(event.what, Fenced) and event.what.seq == _fence_seq(evidence, attempt):
                return found
            elif isinstance(event.what, Fenced):
                found = None
    return None


def _fence_seq(evidence: Evidence, attempt: int) -> int:
    return attempts(evidence.store.log.entries)[attempt].fence.seq


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
        r for r in evidence.history.receipts if identity(r) in gone and r.attempt < attempt
    ]
    struck = struck or [r for r in evidence.history.receipts if identity(r) in gone]
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
    found = [
        instant(evidence, event)
        for event in events(evidence, StepDone)
        if event.attempt == attempt and event.what.step >= least
    ]
    return min(found, key=lambda at: at[1]) if found and len({boot for boot, _ in found}) == 1 else None


def _seconds(start: _Instant | None, end: _Instant | None) -> float | None:
    if start is None or end is None or start[0] is None or start[0] != end[0]:
        return None
    return round((end[1] - start[1]) / 1e9, 6)
