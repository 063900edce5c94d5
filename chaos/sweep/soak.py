"""A soak: runs with kills at random times, one after another, until so many processes were killed; and what is left.

Each run is killed a few times, once in each attempt, at times drawn from the seed; it is long enough that the last
attempt has steps left whatever was drawn. Processes, file handles, shared memory and this process's memory are counted
before and after: what grows with the number of runs is a leak.
"""

from __future__ import annotations

import contextlib
import gc
import importlib
import os
import random
import stat
import time
from collections.abc import Iterator
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import psutil

from chaos.audit.findings import count, listed
from chaos.experiment import Experiment
from chaos.interrupts import Interrupts
from chaos.life import Place
from chaos.schema import RunSettings
from chaos.sweep.command import Swept, Watch
from chaos.sweep.conduct import SPARES, Conductor, Task
from chaos.sweep.jobs import conduct_all
from chaos.sweep.results import Journal, Result
from chaos.sweep.summary import Pace, summarize
from chaos.sweep.trials import Trial
from trainers.spec import code_digest

KILLS_A_RUN = 5
_EARLIEST_S, _LATEST_S = 0.02, 0.5  # after the attempt began to train
_HANDLES_A_RUN = 0.5  # a run has five kills: what each of them left would be ten times that
_MEMORY_A_RUN, _RUNS = 64 << 10, 50  # over fewer runs what allocators and caches take at first hides everything
_SHARED = Path("/dev/shm")


@dataclass(frozen=True)
class Footprint:
    """What this program holds of the machine: counts, this user's files in shared memory, this process's own memory."""

    processes: int
    handles: int
    shared: frozenset[str]
    memory_bytes: int

    @classmethod
    def now(cls) -> Footprint:
        """Of this process and all that descend from it."""
        gc.collect()
        own = psutil.Process()
        return cls(len(own.children(recursive=True)), own.num_fds(), _shared(_SHARED), own.memory_info().rss)

    def since(self, before: Footprint, shared: Path = _SHARED) -> Footprint:
        """Without the new files in shared memory that a process holds: those of this program have ended by now."""
        others = {name for name in self.shared - before.shared if _held(shared / name)}
        return replace(self, shared=self.shared - others)

    def to_json(self) -> dict[str, Any]:
        """Counts, bytes, and the names of the files."""
        return {**vars(self), "shared": sorted(self.shared)}


@dataclass(frozen=True)
class Soaked:
    """A soak. before and after: with nothing running. growth_bytes_a_run, handles_a_run: of this process, over the
    second half, which has so many runs.

    Ray keeps a few handles of a process that was once connected, so those are judged by their growth.
    """

    swept: Swept
    kills: int
    before: Footprint
    after: Footprint
    growth_bytes_a_run: float
    handles_a_run: float = 0.0
    runs: int = 0

    @property
    def leaks(self) -> list[str]:
        """What is left that was not there before, in words."""
        found = []
        if (grown := self.after.processes - self.before.processes) > 0:
            found.append(f"{grown} {'process' if grown == 1 else 'processes'} left")
        if files := sorted(self.after.shared - self.before.shared):
            found.append(f"{count(len(files), 'file')} in shared memory left: {listed(files)}")
        if self.handles_a_run > _HANDLES_A_RUN:
            found.append(f"{self.handles_a_run:.2f} more file handles a run")
        if self.growth_bytes_a_run > _MEMORY_A_RUN and self.runs >= _RUNS:
            found.append(f"{self.growth_bytes_a_run / 1024:.1f} KiB more memory a run")
        return found

    @property
    def verdict(self) -> str:
        """The trials' verdict; with something left behind it is not valid."""
        return "invalid" if self.leaks and self.swept.summary.verdict == "valid" else self.swept.summary.verdict

    def to_json(self) -> dict[str, Any]:
        """For programs."""
        return {
            **self.swept.to_json(), "verdict": self.verdict, "kills": self.kills, "leaks": self.leaks,
            "before": self.before.to_json(), "after": self.after.to_json(),
            "handles_a_run": round(self.handles_a_run, 3), "memory_growth_bytes_a_run": round(self.growth_bytes_a_run),
        }  # fmt: skip


def soak(experiment: Experiment, folder: Path, kills: int, seed: int, deadline_s: float, watch: Watch) -> Soaked:
    """Kills until `kills` processes were killed. Raises SweepError."""
    trials = list(draw(experiment.run, kills, seed))
    identity = {"config": experiment.config_digest, "code": code_digest([]), "soak": [kills, seed]}
    journal, memory, handles = Journal(folder, identity), [], []
    left = [trial for trial in trials if trial.name not in journal.results]
    _settle()
    before = Footprint.now()
    with Interrupts() as interrupts, Place(interrupts, reuse=True, spares=SPARES) as place:
        watch.begin(len(trials), len(trials) - len(left))
        began = time.monotonic()

        def ended(result: Result) -> None:
            journal.add(result)
            watch.result(result)
            memory.append(psutil.Process().memory_info().rss)
            handles.append(psutil.Process().num_fds())

        conduct_all(Conductor(experiment, folder, place, deadline_s), 1, map(Task, left), watch.trial, ended)
        pace = Pace(len(left), time.monotonic() - began)
    after = Footprint.now().since(before)
    swept = Swept(tuple(trials), journal.results, summarize(trials, journal.results), pace)
    struck = sum(result.struck for result in journal.results.values())
    half = len(memory) // 2
    return Soaked(swept, struck, before, after, _slope(memory[half:]), _slope(handles[half:]), len(memory) - half)


def draw(run: RunSettings, kills: int, seed: int) -> Iterator[Trial]:
    """Runs with `KILLS_A_RUN` kills each, or fewer in the last one: of a rank, mostly, or the committer."""
    drawn, number = random.Random(seed), 0
    while kills > 0:
        faults = []
        for attempt in range(min(KILLS_A_RUN, kills)):
            at: dict[str, Any] = {"attempt": attempt, "after_s": round(drawn.uniform(_EARLIEST_S, _LATEST_S), 4)}
            who = drawn.randrange(run.ranks + 1)
            at |= {"role": "committer"} if who == run.ranks else {"role": "rank", "rank": who}
            faults.append({"kind": "sigkill", "at": at})
        kills -= len(faults)
        yield Trial(f"soak/{number}", tuple(faults), None)
        number += 1


def _settle() -> None:
    """Imports what the first run would import, so that it is not taken for growth."""
    for name in ("chaos.audit", "trainers.supervisor", "trainers.pipeline"):
        importlib.import_module(name)


def _shared(folder: Path) -> frozenset[str]:
    """Names of this user's files there, whose folders are no shared memory."""
    if not folder.is_dir():
        return frozenset()
    found = set()
    for path in folder.iterdir():
        with contextlib.suppress(FileNotFoundError):  # gone meanwhile
            seen = path.lstat()
            if stat.S_ISREG(seen.st_mode) and seen.st_uid == os.getuid():
                found.add(path.name)
    return frozenset(found)


def _held(file: Path) -> bool:
    """Whether a process that can be looked into has it open or mapped."""
    for process in Path("/proc").glob("[0-9]*"):
        with contextlib.suppress(OSError):  # ended meanwhile, or another user's
            if f" {file}\n" in (process / "maps").read_text(errors="replace"):
                return True
            if any(os.readlink(handle) == str(file) for handle in (process / "fd").iterdir()):
                return True
    return False


def _slope(values: list[int]) -> float:
    """Least squares, bytes a run."""
    count = len(values)
    if count < 2:
        return 0.0
    mean_x, mean_y = (count - 1) / 2, sum(values) / count
    over = sum((x - mean_x) * (y - mean_y) for x, y in enumerate(values))
    return over / sum((x - mean_x) ** 2 for x in range(count))
