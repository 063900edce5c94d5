"""A fork server for the workers of one Ray job, which has imported Ray as they would.

Ray's core takes its configuration, the job's id among it, from the environment when it is imported, and keeps it. Of
what it draws at random nothing may be drawn before a fork, since all children would draw the same ids. Importing
Ray's modules draws only the ids of the actor classes that they define; here the system draws these.
"""

from __future__ import annotations

import contextlib
import gc
import importlib
import os
import select
import socket
import sys
from dataclasses import dataclass, field

from chaos.forkchild import Interpreter, die_with
from chaos.forkclient import Request

_JOB_ID = "RAY_JOB_ID"
_LIFELINE = 0
# What a run's processes use, among it what Ray imports when it is first used. What another Ray lacks is left out.
PRELOAD = (
    "ray.data", "ray.util.state.api", "ray._common.pydantic_compat", "ray._private.arrow_serialization",
    "ray.autoscaler._private.cli_logger", "ray.dashboard.modules.dashboard_sdk",
    "ray.data._internal.logical.optimizers", "ray.data._internal.execution.streaming_executor",
    "ray.data._internal.planner.planner", "ray.data._internal.issue_detection",
    "ray.data._internal.execution.callbacks.insert_issue_detectors",
    "ray.data._internal.execution.callbacks.resource_allocator_prometheus_callback",
    "ray.data._internal.execution.callbacks.execution_idx_update_callback",
    "trainers.rank", "trainers.committer", "chaos.striker", "trainers.workloads.bytelm", "trainers.workloads.tiny",
)  # fmt: skip
_DRAWN_BYTES = 28


@dataclass(frozen=True)
class Job:
    """Workers that may be forked from one process: Ray's own variables and the search path are the same for all."""

    folder: str
    variables: tuple[tuple[str, str], ...]

    @classmethod
    def of(cls, request: Request) -> Job | None:
        """None: what is asked for is no worker of Ray."""
        given = request.environment
        if _JOB_ID not in given:
            return None
        kept = sorted(item for item in given.items() if item[0].startswith("RAY_") or item[0] == "PYTHONPATH")
        return cls(request.folder, tuple(kept))


@dataclass(eq=False)
class JobServer:
    """As the first server sees it; in the child itself `pidfd` is None. `lifeline`: whose end it ends at."""

    job: Job
    path: str
    listener: socket.socket
    pid: int
    pidfd: int | None
    lifeline: int
    wanted: bool = field(default=True, init=False)

    @classmethod
    def fork(cls, job: Job, first: str) -> JobServer:
        """Forks it beside the server at `first`. Whoever connects before it has imported Ray waits for it."""
        parent, path = os.getpid(), f"{first}.{dict(job.variables)[_JOB_ID]}-{os.urandom(4).hex()}"
        listener = socket.socket(socket.AF_UNIX)
        os.fchmod(listener.fileno(), 0o600)
        listener.bind(path)
        listener.listen(64)
        theirs, ours = os.pipe()
        pid = os.fork()
        if pid == 0:
            die_with(parent)
            os.dup2(theirs, _LIFELINE)
            os.close(theirs)
            os.close(ours)
            return cls(job, path, listener, os.getpid(), None, _LIFELINE)
        os.close(theirs)
        listener.close()
        return cls(job, path, listener, pid, os.pidfd_open(pid), ours)

    @property
    def serves(self) -> bool:
        """Whether it lives, and is to start something new."""
        return self.wanted and self.pidfd is not None and not select.select([self.pidfd], [], [], 0)[0]

    def end(self) -> None:
        """It starts nothing new, and ends with the last of its children."""
        if self.pidfd is not None and self.wanted:
            os.close(self.lifeline)
        self.wanted = False

    def reap(self) -> None:
        """Once its pidfd says that it has ended."""
        os.waitpid(self.pid, 0)
        self.end()
        self.release()
        with contextlib.suppress(OSError):
            os.unlink(self.path)

    def release(self) -> None:
        """Closes what is held of it: in a child, which has its own copies, or when it has ended."""
        if self.pidfd is not None:
            os.close(self.pidfd)
            if self.wanted:
                os.close(self.lifeline)
        self.pidfd = None


def import_ray(job: Job, interpreter: Interpreter) -> None:
    """In the job's server. Ends the process if Ray cannot be imported, or if its children would draw the same."""
    os.environ.update(job.variables)
    interpreter.before = dict(os.environ)
    sys.path[:] = interpreter.search_path(os.environ)
    try:
        _import_all()
    except Exception as error:  # whatever it is, the worker will say it too, and to whom it concerns
        print(f"killpoint fork server: cannot import ray: {error}", file=sys.stderr)
        os._exit(1)
    interpreter.after_preloading()
    gc.collect()
    gc.freeze()
    if len({_drawn_in_a_child() for _ in range(2)}) != 2:
        print("killpoint fork server: this Ray draws at random when it is imported; not used", file=sys.stderr)
        os._exit(1)


def _import_all() -> None:
    from ray import ActorClassID, actor

    class DrawnBySystem:
        @staticmethod
        def from_random() -> ActorClassID:
            return ActorClassID(os.urandom(ActorClassID.size()))

    vars(actor)["ActorClassID"] = DrawnBySystem
    try:
        for name in PRELOAD:
            with contextlib.suppress(ImportError):
                importlib.import_module(name)
    finally:
        vars(actor)["ActorClassID"] = ActorClassID


def _drawn_in_a_child() -> bytes:
    theirs, ours = os.pipe()
    pid = os.fork()
    if pid == 0:
        try:
            from ray import WorkerID

            os.write(ours, WorkerID.from_random().binary())
        finally:
            os._exit(0)
    os.close(ours)
    drawn = os.read(theirs, _DRAWN_BYTES)
    os.close(theirs)
    os.waitpid(pid, 0)
    return drawn

