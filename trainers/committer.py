"""The committer: turns the ranks' reports into one published checkpoint, and retires old ones (invariants 1, 6, 7).

A small actor without torch. It reads every file back against the digests, writes the manifest, appends `publish`,
then applies retention. Its death ends the attempt. It never decides whether it is still the committer: the commit
log does, when it refuses to append after a later fence.
"""

from __future__ import annotations

import threading
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path

from storage.commit import commit_checkpoint
from storage.errors import Fenced, StorageError, Unavailable
from storage.history import History
from storage.log import CommitLog, Parent
from storage.manifest import FileRecord, Fingerprints, Manifest, RankRecord, checkpoint_name
from storage.objects import LocalObjects
from storage.retention import leftovers, retire, to_retire
from storage.retrying import Retrying
from trainers.errors import Interrupted
from trainers.parts import REPLICATED, part_digests
from trainers.points import KillPoints
from trainers.reports import CommitterSetup, Member, SaveReport
from trainers.witness import watched
from trainers.worker import end_duty, member_of

_Moment = tuple[int, int, int]  # attempt, step, microbatch


@dataclass
class _Pending:
    """One checkpoint that is being gathered; `done` is set when it is published or lost."""

    reports: dict[int, SaveReport] = field(default_factory=dict)
    done: threading.Event = field(default_factory=threading.Event)
    error: Exception | None = None


class Committer:
    """Runs as a Ray actor with several threads: each rank's report waits in one until the checkpoint is published."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._committing = threading.Lock()

    def enlist(self, setup: CommitterSetup, points: KillPoints) -> Member:
        """Serves this run from now on, in its process."""
        self.serve(setup, points)
        return member_of(self._history)

    def serve(self, setup: CommitterSetup, points: KillPoints) -> None:
        """Commits for this run from now on."""
        self._setup, self._points = setup, points
        folder = Path(setup.folder)
        watched(folder / "history", setup.run)
        self._history = History.open(folder / "history", "committer", setup.run)
        store = points.store(LocalObjects(folder / "store"))
        self._objects = Retrying(store, setup.unavailable_deadline_s, self._store_failed)
        self._log = CommitLog(self._objects, setup.run, points)
        self._attempt = -1
        self._parent: str | None = None
        self._fingerprints: Fingerprints | None = None
        self._pending: dict[_Moment, _Pending] = {}
        self._verified: set[str] = set()
        self._untidy = True

    def discharge(self) -> bool:
        """Serves no run any more. False if a commit is still under way."""
        idle = not self._pending and not self._committing.locked()
        end_duty(self._points, self._history)
        return idle

    def hold(self) -> None:
        """Never returns: its failing tells the supervisor at once that this process is gone."""
        threading.Event().wait()

    def begin(self, attempt: int, parent: Parent | None, fingerprints: Fingerprints, clock: int) -> int:
        """From now on reports of `attempt` are committed, on top of `parent`."""
        self._history.witness(clock)
        self.abandon(attempt - 1)
        with self._lock:
            self._attempt, self._fingerprints = attempt, fingerprints
            self._parent = parent.digest if parent else None
            self._verified = {parent.name} if parent else set()
            self._untidy = True  # whoever went before may have been killed between an entry and a removal
        self._points.flush()
        self._points.enter(attempt, "committer", None, self._history)
        self._history.record("began", attempt)
        return self._history.clock

    def abandon(self, attempt: int) -> None:
        """Attempts up to `attempt` are over: whoever waits for their checkpoints is released with Interrupted."""
        with self._lock:
            for key, pending in list(self._pending.items()):
                if key[0] <= attempt and len(pending.reports) < self._setup.world:
                    pending.error = Interrupted(f"attempt {key[0]} ended while step {key[1]} was being saved")
                    pending.done.set()
                    del self._pending[key]

    def report(self, report: SaveReport) -> None:
        """Adds one rank's part; returns when the checkpoint is published. Raises Fenced, Interrupted, Damaged, …"""
        self._history.witness(report.clock)
        key = report.moment
        with self._lock:
            if report.attempt != self._attempt:
                raise Interrupted(f"a save of attempt {report.attempt} came while attempt {self._attempt} is on")
            pending = self._pending.setdefault(key, _Pending())
            pending.reports[report.rank] = report
            complete = len(pending.reports) == self._setup.world
        if complete:
            self._commit(key, pending)
        else:
            pending.done.wait()
        if pending.error is not None:
            raise pending.error

    def _commit(self, key: _Moment, pending: _Pending) -> None:
        attempt, step, microbatch = key
        try:
            with self._committing:
                self._points("commit.collected")
                manifest = self._manifest(key, pending.reports)
                entry = commit_checkpoint(
                    self._objects, self._log, manifest, self._points,
                    lambda digest: self._note(
                        "manifest_written", attempt, name=manifest.name, step=step, digest=digest
                    ),
                )
                self._note(
                    "published", attempt, name=manifest.name, step=step, digest=entry.digest, seq=entry.seq
                )
                with self._lock:
                    if self._attempt == attempt:  # else begin() has already said what comes next
                        self._parent = entry.digest
                        self._verified.add(manifest.name)
        except Exception as error:
            pending.error = error
            if isinstance(error, Fenced):
                self._note("fenced_off", attempt, name=checkpoint_name(step, attempt, microbatch), detail=str(error))
        finally:
            with self._lock:
                self._pending.pop(key, None)
            pending.done.set()
        if pending.error is None:
            self._retire(attempt)

    def _note(self, event: str, attempt: int, **fields: object) -> None:
        self._history.record(event, attempt, **fields)

    def _store_failed(self, error: Unavailable) -> None:
        self._note("store_failed", self._attempt, where=error.where, what=error.what)

    def _manifest(self, key: _Moment, reports: Mapping[int, SaveReport]) -> Manifest:
        attempt, step, microbatch = key
        assert self._fingerprints is not None  # begin() came before any report was accepted
        ranks = sorted(reports)
        files = [FileRecord(f.path, f.kind, r, f.bytes, f.digest) for r in ranks for f in reports[r].files]
        tensors = {name: digest for r in ranks for name, digest in reports[r].replicated.items()}
        parts = part_digests(REPLICATED, tensors, reports[0].texts)
        records = tuple(RankRecord(r, reports[r].parts, reports[r].local, reports[r].head) for r in ranks)
        return Manifest(
            run=self._setup.run, name=checkpoint_name(step, attempt, microbatch), attempt=attempt, step=step,
            world=self._setup.world, cursor=step * self._setup.global_batch, parent=self._parent,
            fingerprints=self._fingerprints, files=tuple(files), tensors=tensors, parts=parts, ranks=records,
            microbatch=microbatch,
        )

    def _retire(self, attempt: int) -> None:
        try:
            with self._committing:
                entries = self._log.read()
                names = to_retire(entries, self._setup.keep, self._verified)
                if self._untidy:
                    names += leftovers(entries, self._objects.list("shards"))
                if names:
                    retirement = retire(self._objects, self._log, attempt, names, self._points)
                    self._note("retired", attempt, names=list(names), seq=retirement.seq)
                    for path in retirement.removed:
                        self._note("removed", attempt, path=path)
                self._untidy = False
        except Fenced as error:
            self._note("fenced_off", attempt, name="", detail=str(error))
        except StorageError as error:  # the save is published all the same, and the next one retires what is left
            self._untidy = True
            self._note("retire_failed", attempt, detail=str(error))

    def close(self) -> None:
        """Ends the history; the process is killed afterwards."""
        self._points.flush()
        self._history.close()
