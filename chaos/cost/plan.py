"""Which kills strike in which runs: spread over the interval, several in one run, one an attempt. Pure.

Evenly spread ones cover the time between two saves from end to end. Where the save would still be in flight, by what
an undisturbed run showed, a gate holds it there; elsewhere a gate says that it is published. All is exact then, so what
each attempt begins with is known beforehand, and the next kill can be placed. Between kills the training has a while in
which a new standby gets warm, as it would have in reality.
"""

from __future__ import annotations

import math
import random
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

from chaos.cost.predict import Setting, at_random, exact
from chaos.cost.values import Expected

KILLS_A_RUN = 15
_IN_FLIGHT = ("shard.half", "ledger.synced", "save.reported")  # stages of a save that is not published
_PUBLISHED = "save.done"
_FASTEST = 0.6  # of the undisturbed run's step: no step is thought to be quicker than so much of it
_EARLIEST_S = 0.02


@dataclass(frozen=True)
class Pace:
    """What an undisturbed run with this interval showed. settle_s: until a new standby is warm."""

    step_s: float
    background_s: float
    settle_s: float


@dataclass(frozen=True)
class Planned:
    """A kill. fault: as in an experiment file. save: where a gate holds the rank's save, "" without one."""

    attempt: int
    rank: int
    fault: dict[str, Any]
    where: str
    save: str
    phase_steps: float | None
    expected: Expected


@dataclass(frozen=True)
class PlannedRun:
    """A run with kills, one an attempt from the first on."""

    name: str
    every: int
    kills: tuple[Planned, ...]


@dataclass(frozen=True)
class _Place:
    """finished: updates when it strikes. hit: of the save that is held, counted in the attempt; 0 without a gate."""

    finished: int
    hit: int
    restored: int


def steps_needed(every: tuple[int, ...], steps: int) -> int:
    """Of each run, alike for all intervals so that they have one twin: at least two of the longest interval."""
    longest = max(every)
    return max(steps, 2 * longest + max(2, math.ceil(longest / 5)))


def even(setting: Setting, pace: Pace, kills: int, seed: int) -> list[tuple[Planned, ...]]:
    """Runs with gated kills at (j + ½)/kills of the interval, j = 0 … kills − 1, in an order drawn from the seed."""
    pending = [(index + 0.5) / kills * setting.every for index in range(kills)]
    random.Random(f"{seed}/{setting.every}").shuffle(pending)
    runs: list[list[Planned]] = []
    while pending:
        began, run = 0, list[Planned]()
        first = next((each for each in pending if each < 1.0), pending[0])  # only a run's beginning may have room
        found: tuple[float, _Place] | None = (first, _first_place(setting, pace, first))
        while found is not None:
            phase, place = found
            pending.remove(phase)
            number = kills - len(pending) - 1
            run.append(_gated(setting, number, len(run), began, place, phase, _flying(pace, phase)))
            began = place.restored
            found = _next_place(setting, pace, began, pending) if len(run) < KILLS_A_RUN else None
        runs.append(run)
    return [tuple(run) for run in runs]


def _next_place(setting: Setting, pace: Pace, began: int, pending: Sequence[float]) -> tuple[float, _Place] | None:
    """The first phase that has a place in an attempt which begins at `began`."""
    placed = ((phase, _place(setting, pace, began, phase)) for phase in pending)
    return next(((phase, place) for phase, place in placed if place is not None), None)


def _flying(pace: Pace, phase: float) -> bool:
    """Whether the last save would still be in flight."""
    return phase * pace.step_s < pace.background_s


def exponential(setting: Setting, pace: Pace, kills: int, seed: int) -> list[tuple[Planned, ...]]:
    """Runs with kills at times drawn from an exponential whose mean is the time of one interval, one an attempt.

    Times that a whole run would be too short for are cut, and a new run is begun where the one at hand might be over
    before: so every kill strikes.
    """
    drawn, step_s = random.Random(f"{seed}/{setting.every}"), _FASTEST * pace.step_s
    runs: list[list[Planned]] = [[]]
    began = 0  # the last step that the attempt may begin with
    for _ in range(kills):
        after_s = min(0.9 * setting.steps * step_s, drawn.expovariate(1 / (setting.every * pace.step_s)))
        done = int(after_s / step_s) + 1
        if began + done >= setting.steps or len(runs[-1]) == KILLS_A_RUN:
            runs, began = [*runs, []] if runs[-1] else runs, 0
        began += done // setting.every * setting.every
        after_s = round(max(_EARLIEST_S, after_s), 4)
        attempt, rank = len(runs[-1]), drawn.randrange(setting.ranks)
        fault = {"kind": "sigkill", "at": {"attempt": attempt, "role": "rank", "rank": rank, "after_s": after_s}}
        where = f"{after_s} s into the attempt"
        runs[-1].append(Planned(attempt, rank, fault, where, "", None, at_random(setting)))
    return [tuple(run) for run in runs]


def _place(setting: Setting, pace: Pace, began: int, phase: float) -> _Place | None:
    """Where in an attempt that begins at `began` it can strike; None if the run is too short for it."""
    every, offset, flying = setting.every, int(phase), _flying(pace, phase)
    least = 2 if flying and began == 0 else 1  # so that there is a checkpoint to restore
    settle = _settle_steps(setting, pace)
    wanted = max(least, math.ceil(settle / every))
    for hit in range(wanted, max(least, wanted // 2) - 1, -1):
        due = began + hit * every
        room = flying or began == 0 or due + every <= setting.steps  # for the kills that follow
        if room and due + offset < setting.steps:
            return _Place(due + offset, hit, due - every if flying else due)
    if not flying and began > 0 and offset > 0 and every >= settle and began + offset < setting.steps:
        # Before the attempt's first save nothing else can be published; but it has to finish an update of its own,
        # or what is done again is what the attempt before it had done.
        return _Place(began + offset, 0, began)
    return None


def _first_place(setting: Setting, pace: Pace, phase: float) -> _Place:
    """In a new run; if it is too short for the phase, as far into it as there are steps."""
    if (place := _place(setting, pace, 0, phase)) is not None:
        return place
    flying = _flying(pace, phase)
    hit = 2 if flying else 1
    due = hit * setting.every
    return _Place(min(due + int(phase), setting.steps - 1), hit, due - setting.every if flying else due)


def _settle_steps(setting: Setting, pace: Pace) -> int:
    return min(math.ceil(pace.settle_s / pace.step_s), setting.steps // 8)


def _gated(
    setting: Setting, number: int, attempt: int, began: int, place: _Place, phase: float, flying: bool
) -> Planned:
    rank, done = number % setting.ranks, place.finished - began
    partial = min(setting.microbatches, int((phase - int(phase)) * setting.microbatches) + 1)
    hit = done * setting.microbatches + partial
    at = {"attempt": attempt, "role": "rank", "rank": rank, "point": "microbatch.backward", "hit": hit}
    fault: dict[str, Any] = {"kind": "sigkill", "at": at}
    save = ""
    if place.hit:
        stage = _IN_FLIGHT[number % len(_IN_FLIGHT)] if flying else _PUBLISHED
        fault["gate"] = {"role": "rank", "rank": rank, "point": stage, "hit": place.hit}
        save = f"{stage} hit {place.hit}"
    expected = exact(setting, place.finished, partial, not flying)
    since = place.finished % setting.every + partial / setting.microbatches
    return Planned(attempt, rank, fault, f"microbatch.backward hit {hit}", save, since, expected)


def trained_steps(run: tuple[Planned, ...], setting: Setting) -> Iterator[int]:
    """Updates that each attempt of the run is expected to do; for random kills nothing is known."""
    began = 0
    for kill in run:
        if not kill.expected.exact:
            continue
        restored, redo = kill.expected.restored_step[0], kill.expected.redo_steps[0]
        yield restored + redo - began
        began = restored
    yield setting.steps - began
