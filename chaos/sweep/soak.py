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
from chaos.sweep.command import Choice, Swept, Watch
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
_SHARED, _PROCESSES = Path("/dev/shm"), Path("/proc")
_MARK = "KILLPOINT_SOAK"  # in the environment of all that a soak starts, and so of what outlives its parent


@dataclass(frozen=True)
class Footprint:
    """What this program holds of the machine: counts, this user's files in shared memory, this process's own memory."""

    processes: int
    handles: int
    shared: frozenset[str]
    memory_bytes: int

    @classmethod
    def now(cls) -> Footprint:
        """Of this process and all that it has started."""
        gc.collect()
        own = psutil.Process()
        return cls(len(_own()) - 1, own.num_fds(), _shared(_SHARED), own.memory_info().rss)

    def since(self, before: Footprint, shared: Path = _SHARED) -> Footprint:
        """Without the new files in shared memory that are gone by now, or that another program holds."""
        own = _own()
        new = self.shared - before.shared
        others = {name for name in new if not (shared / name).exists() or _held(shared / name, own)}
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
    seed: int
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
            **self.swept.summary.to_json(), "pace": self.swept.pace.to_json(), "seed": self.seed,
            "verdict": self.verdict, "kills": self.kills, "leaks": self.leaks,
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
    os.environ[_MARK] = str(os.getpid())
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
    swept = Swept(tuple(trials), journal.results, summarize(trials, journal.results), pace, len(trials), Choice())
    struck = sum(result.struck for result in journal.results.values())
    half = len(memory) // 2
    return Soaked(swept, seed, struck, before, after, _slope(memory[half:]), _slope(handles[half:]), len(memory) - half)


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


def _own() -> frozenset[int]:
    """This process, all that descend from it, and what it has started and somebody else has adopted."""
    mark = f"\0{_MARK}={os.getpid()}\0".encode()
    found = {os.getpid(), *(child.pid for child in psutil.Process().children(recursive=True))}
    for process in _PROCESSES.glob("[0-9]*"):
        with contextlib.suppress(OSError):  # ended meanwhile, or another user's
            if mark in b"\0" + (process / "environ").read_bytes():
                found.add(int(process.name))
    return frozenset(found)


def _held(file: Path, own: frozenset[int]) -> bool:
    """Whether a process that is none of `own` has it open or mapped."""
    return any(_holds(process, file) for process in _PROCESSES.glob("[0-9]*") if int(process.name) not in own)


def _holds(process: Path, file: Path) -> bool:
    """False also if it has ended, or is another user's."""
    with contextlib.suppress(OSError):
        if f" {file}\n" in (process / "maps").read_text(errors="replace"):
            return True
    with contextlib.suppress(OSError):
        for handle in (process / "fd").iterdir():
            with contextlib.suppress(OSError):  # closed meanwhile
                if os.readlink(handle) == str(file):
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
