"""Waiting for remote calls while watching every process that takes part: dead, stopped, stalled, raised, late.

A dead process shows by its `hold` call failing, within milliseconds. A stopped one shows by its state on this host,
or by not answering pings; a live-locked one answers, but passes no point.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import ray
from ray.exceptions import GetTimeoutError, RayActorError, RayError, RayTaskError

from storage.history import History
from trainers.blame import described
from trainers.errors import Interrupted, WorkloadRaised
from trainers.pool import Process
from trainers.reports import WAITS_FOR_INPUT, WARMS_UP, Heartbeat, Outcome

_POLL_S = 0.1
_PING_S = 0.25
_GRACE_S = 1.0
_INPUT_PATIENCE = 6  # times the deadline for a hang


@dataclass(frozen=True)
class Lost:
    """A process that cannot go on in this attempt. `error` is what it raised, if it did."""

    process: Process
    how: str
    detail: str = ""
    error: BaseException | None = None

    def __str__(self) -> str:
        who = self.process.role if self.process.rank is None else f"{self.process.role} {self.process.rank}"
        return f"{who} {self.how.replace('_', ' ')}" + (f": {self.detail}" if self.detail else "")


class AttemptFailed(Exception):
    """The attempt cannot go on. `pending` maps the calls still running to their processes."""

    def __init__(self, lost: Sequence[Lost], pending: Mapping[Any, Process]) -> None:
        super().__init__(", ".join(map(str, lost)) or "a rank was interrupted, and no cause showed")
        self.lost, self.pending = list(lost), dict(pending)


@dataclass
class _Pulse:
    ref: Any = None
    asked: float = 0.0
    heard: float = field(default_factory=time.monotonic)
    moved: float = field(default_factory=time.monotonic)
    last: Heartbeat | None = None


class Watch:
    """One attempt's watch over its processes. `on_beat` gets every heartbeat, for live progress."""

    def __init__(
        self, processes: Sequence[Process], committer: Process, is_stopped: Callable[[Process], bool], history: History,
        hang_deadline_s: float, on_beat: Callable[[Process, Heartbeat], None],
    ) -> None:
        self._ranks, self._committer = list(processes), committer
        self._is_stopped, self._history = is_stopped, history
        self._hang_deadline_s, self._on_beat = hang_deadline_s, on_beat
        self._pulses = {process: _Pulse() for process in processes}

    def collect(self, calls: Mapping[Any, Process], deadline_s: float | None = None) -> dict[Process, Any]:
        """Results of the calls by process. Raises AttemptFailed as soon as somebody cannot go on."""
        holds = {p.hold: p for p in (*self._ranks, self._committer)}
        results: dict[Process, Any] = {}
        pending = dict(calls)
        limit = None if deadline_s is None else time.monotonic() + deadline_s
        self._restart_pulses()
        while pending:
            done, _ = ray.wait([*pending, *holds], timeout=_POLL_S)
            lost = [self._harvest(ref, pending, holds, results) for ref in done]
            self._fail([each for each in lost if each is not None], pending)
            self._fail(self._stopped(), pending)
            if any(isinstance(result, Outcome) and not result.finished for result in results.values()):
                self._fail(self._cause(pending, holds), pending, certain=True)
            self._beat()
            self._fail(self._stalled(pending), pending)
            if limit is not None and time.monotonic() > limit:
                self._fail([Lost(p, "missed_deadline") for p in pending.values()], pending, certain=True)
        return results

    def _harvest(
        self, ref: Any, pending: dict[Any, Process], holds: Mapping[Any, Process], results: dict[Process, Any]
    ) -> Lost | None:
        process = pending.get(ref) or holds[ref]
        try:
            value = ray.get(ref)
        except RayTaskError as error:
            cause = getattr(error, "cause", None) or error
            pending.pop(ref, None)
            if isinstance(cause, Interrupted):
                results[process] = Outcome(False, 0, str(cause))
                return None
            return raised(process, cause)
        except RayError as error:  # unavailable counts as dead: it is fenced and killed, not waited for
            pending.pop(ref, None)
            return Lost(process, "actor_died", type(error).__name__)
        if pending.pop(ref, None) is not None:
            results[process] = value
        return None

    def _fail(self, lost: Sequence[Lost], pending: Mapping[Any, Process], *, certain: bool = False) -> None:
        if lost or certain:
            raise AttemptFailed(lost, pending)

    def _cause(self, pending: dict[Any, Process], holds: Mapping[Any, Process]) -> list[Lost]:
        """Somebody was interrupted, so a peer or the committer is gone: gives its death a moment to show.

        Even if all ranks have returned: two that waited for the committer know of its death before this process does.
        """
        limit = time.monotonic() + _GRACE_S
        while time.monotonic() < limit:
            done, _ = ray.wait([*pending, *holds], timeout=0.02)
            lost = [each for ref in done if (each := self._harvest(ref, pending, holds, {})) is not None]
            if found := [*lost, *self._stopped()]:
                return found
        return []

    def _stopped(self) -> list[Lost]:
        return [Lost(p, "stopped") for p in (*self._ranks, self._committer) if self._is_stopped(p)]

    def _restart_pulses(self) -> None:
        now = time.monotonic()
        for pulse in self._pulses.values():
            pulse.heard = pulse.moved = now

    def _beat(self) -> None:
        now = time.monotonic()
        for process, pulse in self._pulses.items():
            if pulse.ref is None and now - pulse.asked >= _PING_S:
                pulse.ref, pulse.asked = process.actor.ping.remote(self._history.clock), now
            if pulse.ref is None or not ray.wait([pulse.ref], timeout=0)[0]:
                continue
            try:
                beat: Heartbeat = ray.get(pulse.ref, timeout=0)
            except (RayActorError, RayTaskError, GetTimeoutError):
                pulse.ref = None  # the hold call tells of a death
                continue
            if pulse.last is None or beat.ticks != pulse.last.ticks:
                pulse.moved = now
            pulse.ref, pulse.heard, pulse.last = None, now, beat
            self._history.witness(beat.clock)
            self._on_beat(process, beat)

    def _stalled(self, pending: Mapping[Any, Process]) -> list[Lost]:
        now, late = time.monotonic(), self._hang_deadline_s
        silent = [p for p, pulse in self._pulses.items() if now - pulse.heard > late]
        if silent:
            return [Lost(p, "stalled", "does not answer") for p in silent]
        waiting = [p for p in pending.values() if p in self._pulses]
        phases = {p: beat.phase for p in waiting if (beat := self._pulses[p].last) is not None}
        # A slow input is not a hang: Ray runs a lost task again, and starting its workers takes seconds.
        # Neither is a process that still warms up where there is little of a processor to be had.
        late *= _INPUT_PATIENCE if {WAITS_FOR_INPUT, WARMS_UP} & set(phases.values()) else 1
        if not waiting or any(now - self._pulses[p].moved <= late for p in waiting):
            return []
        # Who waits in the reduction waits for the others: the suspects are those who do not.
        suspects = [p for p in waiting if phases.get(p) != "reduce.before"] or waiting
        return [Lost(p, "stalled", f"passed no point since {phases.get(p)}") for p in suspects]


def raised(process: Process, cause: BaseException) -> Lost:
    """A process whose call raised `cause`."""
    return Lost(process, "raised", str(cause) if isinstance(cause, WorkloadRaised) else described(cause), cause)


def never_came(process: Process, error: RayError) -> Lost:
    """A process that died before it served the run, or did not come up in time."""
    how = "missed_deadline" if isinstance(error, GetTimeoutError) else "actor_died"
    return Lost(process, how, str(error).splitlines()[0])


def await_survivors(failure: AttemptFailed, lost: Mapping[Process, Lost], deadline_s: float) -> list[Lost]:
    """Waits until the calls of survivors have returned. Returns those that died or missed the deadline."""
    pending = {ref: p for ref, p in failure.pending.items() if p not in lost}
    if not pending:
        return []
    done, late = ray.wait(list(pending), num_returns=len(pending), timeout=deadline_s)
    found = [Lost(pending[ref], "missed_deadline") for ref in late]
    for ref in done:
        try:
            ray.get(ref)
        except RayTaskError as error:
            cause = getattr(error, "cause", None) or error
            if not isinstance(cause, Interrupted):
                found.append(raised(pending[ref], cause))
        except RayError as error:
            found.append(Lost(pending[ref], "actor_died", type(error).__name__))
    return found


def result_of(ref: Any, process: Process) -> Any:
    """The result of one call. Raises its own error, or AttemptFailed if the process is gone."""
    try:
        return ray.get(ref)
    except RayTaskError as error:
        raise (getattr(error, "cause", None) or error) from error
    except RayError as error:
        raise AttemptFailed([Lost(process, "actor_died", type(error).__name__)], {}) from error
