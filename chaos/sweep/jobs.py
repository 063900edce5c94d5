"""Trials side by side: conductors in processes of their own, on one Ray, to which this one hands out trial by trial.

A process each, since a trial's deadline and Ctrl-C are signals, which only a main thread receives. Results come back
here, so that the journal has one writer. What an interrupt finds done is kept.
"""

from __future__ import annotations

import json
import os
import selectors
import signal
import socket
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import ExitStack, suppress
from dataclasses import asdict, dataclass
from typing import Any

from chaos.cluster import require_cpus
from chaos.errors import SweepError
from chaos.interrupts import Interrupts
from chaos.life import cpus_of
from chaos.runfolder import EXPERIMENT
from chaos.schema import RunSettings
from chaos.sweep.conduct import SPARES, Conductor, Task
from chaos.sweep.record import with_faults
from chaos.sweep.results import Result
from chaos.sweep.trials import Trial

_COMMAND = (sys.executable, "-m", "chaos.sweep.job")
_GRACE_S = 40.0  # for a trial that is interrupted to leave things clean, and its processes with it
_SHOWN = 600  # characters of what a conductor that ended had to say


@dataclass(frozen=True)
class Setting:
    """What every conductor of a sweep is told once. experiment: as a file's text, which `file` would be."""

    experiment: str
    file: str
    folder: str
    deadline_s: float

    @classmethod
    def of(cls, conductor: Conductor) -> Setting:
        """For others like it."""
        file = conductor.folder / EXPERIMENT
        bare = with_faults(conductor.experiment, (), file)
        return cls(bare.text, str(file), str(conductor.folder), conductor.deadline_s)


def more_cpus(run: RunSettings, jobs: int) -> int:
    """CPUs of Ray beside those of one life. Ray only counts them, so there may be more than the machine has."""
    own_supervisor = run.ranks + run.standbys + 1  # the run of such a trial, beside processes that are kept
    return own_supervisor if jobs == 1 else jobs * (cpus_of(run) + SPARES + own_supervisor)


def conduct_all(
    conductor: Conductor, jobs: int, tasks: Iterable[Task], began: Callable[[Trial], None],
    ended: Callable[[Result], None],
) -> None:  # fmt: skip
    """All tasks, by this conductor or by so many others like it. A task is taken when somebody is free for it.

    Raises SweepError, and KeyboardInterrupt.
    """
    if jobs == 1:
        for task in tasks:
            began(task.trial)
            ended(conductor.carry_out(task))
        return
    place = conductor.place
    require_cpus(more_cpus(conductor.experiment.run, jobs), f"{jobs} trials at a time")
    place.release()
    with Jobs(Setting.of(conductor), place.environment, jobs, place.interrupts, ended) as side_by_side:
        side_by_side.conduct(tasks, began)


class Jobs:
    """So many conductors at work; none outlives the `with` block."""

    def __init__(
        self, setting: Setting, environment: Mapping[str, str], count: int, interrupts: Interrupts,
        ended: Callable[[Result], None], command: Sequence[str] = _COMMAND,
    ) -> None:  # fmt: skip
        """environment: where the Ray and the fork server are that they join (`Place.environment`).

        ended: is told every result, at the latest when the block ends.
        """
        self._setting, self._environment, self._count = setting, environment, count
        self._interrupts, self._ended, self._command = interrupts, ended, command
        self._jobs: list[_Job] = []

    def conduct(self, tasks: Iterable[Task], began: Callable[[Trial], None]) -> None:
        """Hands out one after another to whoever is free. A task is taken from `tasks` only when somebody is.

        Raises SweepError if a conductor fails, and KeyboardInterrupt.
        """
        left = iter(tasks)
        with selectors.DefaultSelector() as selector:
            for job in self._jobs:
                selector.register(job.channel, selectors.EVENT_READ, job)
                self._hand_out(left, job, began)
            while any(job.busy for job in self._jobs):
                for key, _events in selector.select():
                    if not key.data.busy:
                        raise SweepError(key.data.obituary())
                    with self._interrupts.deferred():
                        self._ended(key.data.answer())
                    self._hand_out(left, key.data, began)

    def _hand_out(self, left: Iterator[Task], job: _Job, began: Callable[[Trial], None]) -> None:
        task = next(left, None)
        if task is not None:
            began(task.trial)
            job.give(task)

    def __enter__(self) -> Jobs:
        with self._interrupts.deferred():
            for _ in range(self._count):
                self._jobs.append(_Job(self._command, self._environment, self._setting))
        return self

    def __exit__(self, *_exc: object) -> None:
        with self._interrupts.held_off():
            for job in self._jobs:
                job.dismiss()
            until = time.monotonic() + _GRACE_S
            for job in self._jobs:
                job.wait(until)
                if (result := job.left_behind()) is not None:
                    self._ended(result)


class _Job:
    """One conductor's process, and the line to it."""

    def __init__(self, command: Sequence[str], environment: Mapping[str, str], setting: Setting) -> None:
        self._stack = ExitStack()
        self.channel, theirs = socket.socketpair()
        self._stack.enter_context(self.channel)
        self._lines = self._stack.enter_context(self.channel.makefile("r", encoding="utf-8"))
        self._errors = self._stack.enter_context(tempfile.TemporaryFile())  # noqa: SIM115 (the stack closes it)
        with theirs:
            self._process = subprocess.Popen(
                [*command, str(theirs.fileno())], env={**os.environ, **environment}, pass_fds=[theirs.fileno()],
                stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL, stderr=self._errors,
                start_new_session=True,  # a terminal's Ctrl-C is this process's, which passes it on once
            )  # fmt: skip
        self._task: Task | None = None
        self._send(asdict(setting))

    @property
    def busy(self) -> bool:
        """Whether it has a task, and has not answered."""
        return self._task is not None

    def give(self, task: Task) -> None:
        """One task; the next one only when it has answered."""
        self._task = task
        self._send(asdict(task))

    def answer(self) -> Result:
        """What became of the task. Raises SweepError if the process failed."""
        line = self._line()
        if not line:
            raise SweepError(self.obituary())
        message, self._task = json.loads(line), None
        if "error" in message:
            raise SweepError(message["error"])
        return Result.from_json(message["result"])

    def obituary(self) -> str:
        """Of a process that is gone before its time: how it ended, what it said."""
        with suppress(subprocess.TimeoutExpired):
            self._process.wait(_GRACE_S)
        self._errors.seek(0)
        said = self._errors.read().decode("utf-8", "replace").strip()[-_SHOWN:]
        during = "" if self._task is None else f", which conducted {self._task.trial.name},"
        return (
            f"process {self._process.pid} of this sweep{during} ended with {self._process.returncode}"
            f"{': ' if said else ''}{said}. What is done is kept: the same command with the same --output goes on"
        )

    def dismiss(self) -> None:
        """Tells it to end: there is nothing more to do. A trial that it is at is interrupted."""
        with suppress(OSError):
            self.channel.shutdown(socket.SHUT_WR)
        if self.busy:
            self._process.send_signal(signal.SIGINT)

    def wait(self, until: float) -> None:
        """Until it has ended; by force if it takes longer than `time.monotonic() == until`."""
        try:
            self._process.wait(max(0.0, until - time.monotonic()))
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait()

    def left_behind(self) -> Result | None:
        """The result that it sent before it ended and that nobody has read; nothing can be read afterwards."""
        with self._stack:
            line = self._line() if self.busy else ""
            value = json.loads(line) if line.endswith("\n") else {}
            return Result.from_json(value["result"]) if "result" in value else None

    def _send(self, value: Mapping[str, Any]) -> None:
        with suppress(BrokenPipeError, ConnectionResetError):  # it is gone, which the next answer says
            self.channel.sendall(json.dumps(value).encode() + b"\n")

    def _line(self) -> str:
        try:
            return self._lines.readline()
        except ConnectionResetError:
            return ""
