"""What `durable.py` traces: two ranks' savers, the committer and the log's writers, on a real store, without Ray.

Three saves of attempt 0 with a retirement of two shards, then a committer that is fenced off while it publishes, then
attempt 1 with a save of its own. A committer's calls have a thread of their own, as in its actor.
"""

from __future__ import annotations

import os
import sys
import threading
from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
from state_kit import WORKLOADS, step
from storage_kit import CONFIG, OWNER, RUN

from storage.errors import Fenced
from storage.history import History
from storage.ledger import LedgerRows
from storage.log import Candidate, CommitLog, Publish
from storage.manifest import Fingerprints
from storage.objects import LocalObjects
from storage.retrying import Retrying
from trainers.committer import Committer
from trainers.points import NoPoints
from trainers.reports import CommitterSetup, SaveReport
from trainers.saver import Saver, SaverIdentity
from trainers.staging import Staging
from trainers.state import Progress

RANKS, SAMPLES = 2, 6
DEADLINE_S = 60.0
PRINTS = Fingerprints("sha256:d", "sha256:p", CONFIG, "sha256:c")
_DURABLE = frozenset({os.open, os.write, os.fsync, os.link, os.unlink, os.mkdir, os.rename, os.replace, os.remove})
_HERE = Path(__file__).resolve().parents[3]
_MARKS = os.open(os.environ["KILLPOINT_TRACED_MARKS"], os.O_WRONLY | os.O_CREAT | os.O_APPEND)


def reached(who: str, point: str) -> None:
    """A passage, as the trace sees it."""
    os.write(_MARKS, f"{who} {point}\n".encode())


def _origin(frame: Any, event: str, called: Any) -> None:
    """Before each call into the operating system: where it comes from. For the message alone; the trace decides."""
    if event != "c_call" or called not in _DURABLE:
        return
    names, at = [], frame
    while at is not None and len(names) < 3:
        path = Path(at.f_code.co_filename)
        if path.is_relative_to(_HERE):
            names.append(f"{path.relative_to(_HERE)}:{at.f_lineno} {at.f_code.co_name}")
        at = at.f_back
    os.write(_MARKS, f"from {' < '.join(names)}\n".encode())


class Points(NoPoints):
    """Marks every passage of one process. `then` is called after."""

    def __init__(self, who: str) -> None:
        self._who = who
        self.then: Callable[[str], None] = lambda point: None

    def __call__(self, point: str) -> None:
        reached(self._who, point)
        self.then(point)


class Job:
    """The processes of one run, each with the points that it has in reality."""

    def __init__(self, folder: Path) -> None:
        self.folder, self.objects = folder, LocalObjects(folder / "store")
        self.points, self.supervisor = Points("committer"), Points("supervisor")
        self.log = CommitLog(self.objects, RUN, self.supervisor)
        self.committer = Committer()
        self.committer.serve(CommitterSetup(RUN, str(folder), RANKS, SAMPLES, keep=2), self.points)
        self.calls = ThreadPoolExecutor(4, "committer")
        self.workload, self.progress = WORKLOADS["adam_steplr"](), Progress()
        self.savers: list[Saver] = []

    def begin(self, attempt: int) -> None:
        """As the supervisor does it, with its points (`Supervisor._one_attempt`)."""
        self.supervisor("recover.fence.before")
        assert self.log.fence(CONFIG, OWNER).attempt == attempt
        self.supervisor("recover.fence.after")
        newest = [entry for entry in self.log.read() if isinstance(entry, Publish)][-1:]
        self.supervisor("recover.choose.before")
        listed = [Candidate(entry.name, entry.digest, entry.step, "chosen") for entry in newest]
        self.log.choose(attempt, newest[0].as_parent() if newest else None, listed)
        self.supervisor("recover.choose.after")
        self.committer.begin(attempt, newest[0].as_parent() if newest else None, PRINTS, 1)
        self.savers = [self._saver(attempt, rank) for rank in range(RANKS)]

    def _saver(self, attempt: int, rank: int) -> Saver:
        history = History.open(self.folder / "history", f"worker_{'ab'[rank]}_{'ab'[attempt]}", RUN)
        identity = SaverIdentity(RUN, attempt, rank, RANKS)
        points = partial(reached, f"rank{rank}")
        return Saver(identity, Retrying(self.objects, 0.0), Staging(rank, RANKS), history, self.report, points)

    def report(self, report: SaveReport) -> None:
        """The call of a rank to the committer, which runs in another process in reality."""
        call: Future[None] = self.calls.submit(self.committer.report, report)
        call.result(DEADLINE_S)

    def save(self) -> None:
        """One update, and its save by both ranks."""
        first = self.progress.step
        step(self.workload, self.progress)
        at = np.arange(SAMPLES, dtype=np.int64) + SAMPLES * first
        for saver in self.savers:
            rows = LedgerRows(at, at, at.astype(np.uint64), np.full(SAMPLES, first, np.int64),
                              np.zeros(SAMPLES, np.int32))
            saver.save(self.workload, self.progress, rows, first)
        for saver in self.savers:
            saver.wait()

    def fenced_off(self) -> None:
        """The committer stands before its link while the next attempt's fence takes the entry's place."""
        stands, goes_on = threading.Event(), threading.Event()

        def hold(point: str) -> None:
            if point == "log.before_link":
                self.points.then = lambda point: None
                stands.set()
                goes_on.wait(DEADLINE_S)

        self.points.then = hold
        saved = self.calls.submit(self.save)
        assert stands.wait(DEADLINE_S)
        old = self.savers
        self.begin(1)
        goes_on.set()
        assert isinstance(saved.exception(DEADLINE_S), Fenced)
        for saver in old:
            saver.abandon(DEADLINE_S)


def main() -> None:
    folder = Path(sys.argv[1])
    threading.setprofile(_origin)
    sys.setprofile(_origin)
    job = Job(folder)
    job.begin(0)
    for _ in range(3):
        job.save()
    job.fenced_off()
    job.save()
    job.calls.shutdown()
    os._exit(0)  # the threads of torch need not be waited for


if __name__ == "__main__":
    main()
