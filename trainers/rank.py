"""One rank in its process: joins a group, loads a candidate and votes, restores, trains (invariants 4 and 9).

Every attempt builds the workload anew; nothing of an earlier attempt but the process itself is used again.
"""

from __future__ import annotations

import threading
import time
from collections import deque
from collections.abc import Callable
from pathlib import Path

from storage.errors import Damaged, Unavailable
from storage.history import History
from storage.manifest import Manifest, decode
from storage.objects import LocalObjects
from storage.retrying import Retrying
from trainers import reducer
from trainers.accumulation import partial_bytes, restore_partial
from trainers.best import BestModel
from trainers.errors import FingerprintMismatch, Interrupted, StateError
from trainers.events import NonFiniteFound
from trainers.fingerprint import step_fingerprint
from trainers.loaded import Loaded, load, wrong_parts
from trainers.loop import RankRun, train
from trainers.notice import NoNotice, Notice
from trainers.parts import REPLICATED
from trainers.pipeline import Pipeline
from trainers.points import KillPoints
from trainers.reports import Outcome, SaveReport, Vote
from trainers.saver import Saver, SaverIdentity
from trainers.source import Share
from trainers.spec import Assignment, Candidate, Survey, TrainingSpec
from trainers.staging import Staging
from trainers.state import Progress, live_digests, restore, seed_everything
from trainers.warming import settle, survey, warm
from trainers.workload import build, code_files

_ABANDON_S = 1.0


class Rank:
    """The torch side of a worker process. Methods run one after another, but `interrupt` may come at any time."""

    def __init__(self, spec: TrainingSpec, history: History, points: KillPoints, notice: Notice | None = None) -> None:
        self._spec, self._history, self._points = spec, history, points
        self._notice: Notice = notice or NoNotice()
        store = points.store(LocalObjects(spec.folder / "store"))
        self._objects = Retrying(store, spec.unavailable_deadline_s, self._store_failed)
        self.device = settle(spec)
        self.ticks, self.phase, self.step = 0, "idle", 0
        self.loss: float | None = None
        self._findings: deque[NonFiniteFound] = deque()
        self._stop = threading.Event()
        self._assignment: Assignment | None = None
        self._pipeline: Pipeline | None = None
        self._ending: Pipeline | None = None
        self._loaded: Loaded | None = None
        self._staging: Staging | None = None
        self._saver: Saver | None = None
        self._store: tuple[int, object] | None = None  # of which attempt

    def survey(self) -> Survey:
        """Opens and digests the dataset. Raises WorkloadError, DatasetError, PrecisionUnavailable."""
        return survey(self._spec, self.device)

    def code_files(self) -> list[Path]:
        """The workload's sources, as far as they have been imported."""
        return code_files(self._spec.workload)

    def warm(self, *, again: bool = False) -> None:
        """Does what is slow the first time, see `warming`; `again`: has been done in this process before."""
        if not again:
            warm(self._spec, self.device)
        self._points("standby.warm")

    def rest(self) -> bool:
        """Whether nothing of what this rank has started goes on: neither its input nor a save. It is idle from now."""
        self._notice.heeded = False
        saver, last = self._saver, self._ending
        return (saver is None or saver.abandon(_ABANDON_S)) and (last is None or last.ended(_ABANDON_S))

    def open_store(self, attempt: int) -> tuple[str, int]:
        """The rendezvous store of this attempt's group, in this process; replaces the last one."""
        store, host, port = reducer.open_store(self._spec.recovery_deadline_s)
        self._store = attempt, store
        return host, port

    def prepare(self, assignment: Assignment, candidate: Candidate | None) -> Vote:
        """Takes a place: joins the group, then loads and verifies the candidate. Raises Interrupted."""
        self._leave()
        self._stop.clear()
        self.phase = "preparing"  # who is late with joining does not wait in the last attempt's reduction
        self._assignment, self._notice.heeded = assignment, True
        self._history.witness(assignment.clock)
        self._points.enter(assignment.attempt, "rank", assignment.rank, self._history)
        self._history.record("preparing", assignment.attempt, rank=assignment.rank)
        self._start_pipeline(*(candidate.moment if candidate else (0, 0)))
        self._at("recover.joining")
        reducer.join_group(assignment.attempt, assignment.rank, self._spec.ranks, assignment.host, assignment.port,
                           self._spec.recovery_deadline_s)
        self._history.record("joined", assignment.attempt, rank=assignment.rank, world=self._spec.ranks)
        self._at("recover.joined")
        return self.load(candidate)

    def load(self, candidate: Candidate | None) -> Vote:
        """Reads, verifies and keeps the candidate; one rank's no rejects it. None means a start from nothing."""
        assignment = self._here()
        self._loaded = None
        start = candidate.moment if candidate else (0, 0)
        if self._pipeline is None or self._pipeline.start_at != start:
            self._start_pipeline(*start)
        if candidate is None:
            return Vote(ok=True)
        started = time.monotonic()
        try:
            self._loaded = self._read(candidate, assignment.rank)
            vote = Vote(ok=True, bytes=sum(f.bytes for f in self._loaded.manifest.files if f.kind == "shard"))
        except Unavailable as error:
            vote = Vote(ok=False, reason=str(error))
        except Damaged as error:
            vote = Vote(ok=False, damaged=True, reason=str(error))
        self._history.record("loaded", assignment.attempt, rank=assignment.rank, name=candidate.name, ok=vote.ok,
                             reason=vote.reason, bytes=vote.bytes, duration_s=time.monotonic() - started)
        self._at("recover.loaded")
        return vote

    def _read(self, candidate: Candidate, rank: int) -> Loaded:
        manifest, digest = decode(candidate.manifest, candidate.name)
        self._check_fingerprints(manifest)
        return load(self._objects, manifest, digest, rank, lambda: self._at("recover.load.half"))

    def _check_fingerprints(self, manifest: Manifest) -> None:
        ours, theirs = self._here().survey.fingerprints, manifest.fingerprints
        for what in ("dataset", "plan", "config", "code"):
            if getattr(ours, what) != getattr(theirs, what):
                raise FingerprintMismatch(
                    f"checkpoint {manifest.name} was written for another {what} ({getattr(theirs, what)[:19]}…, now "
                    f"{getattr(ours, what)[:19]}…): restore the old {what}, or start a new run"
                )

    def train(self, clock: int, report: Callable[[SaveReport], None]) -> Outcome:
        """Restores what was loaded, digests it live, trains to the last step. The group is left in any case.

        Does not return if a SIGTERM gave notice: nothing of this attempt is left to do, and the process has to go.
        """
        outcome = self._train(clock, report)
        if self._notice.arrived():
            self._notice.leave()
        return outcome

    def _train(self, clock: int, report: Callable[[SaveReport], None]) -> Outcome:
        assignment = self._here()
        self._history.witness(clock)
        self._saver = None
        try:
            run = self._restore(assignment, report)
            self._saver = run.saver
            train(run)
            self._history.record("ended", assignment.attempt, rank=assignment.rank, step=run.progress.step)
            return Outcome(True, run.progress.step, findings=self.take_findings())
        except Interrupted as error:
            reducer.leave_group()
            self._history.record("interrupted", assignment.attempt, rank=assignment.rank, reason=str(error),
                                 step=self.step, phase=self.phase)
            return Outcome(False, self.step, str(error))
        finally:
            self._leave()
            if self._saver is not None and not self._saver.abandon(_ABANDON_S):
                self._staging = None  # its buffers are still being read
            self._points.flush()

    def _restore(self, assignment: Assignment, report: Callable[[SaveReport], None]) -> RankRun:
        spec, started = self._spec, time.monotonic()
        seed_everything(spec.seed, None)
        workload = build(spec.workload, spec.workload_config)
        workload.model.to(self.device)
        gradients = reducer.Reducer(workload.model, spec.ranks)
        seed_everything(spec.seed, assignment.rank)
        loaded = self._loaded
        progress = Progress(best_model=BestModel.of(workload.model) if spec.keep_best else None)
        partial = None
        if loaded is not None:
            progress = restore(workload, loaded.tensors, loaded.texts, keep_best=spec.keep_best)
            partial = restore_partial(workload, loaded.tensors, loaded.texts, progress.step, loaded.manifest.microbatch)
        parts = live_digests(workload, progress) | (partial.digests(workload) if partial else {})
        inside = {"microbatch": partial.microbatch} if partial else {}
        self._history.record("restored", assignment.attempt, rank=assignment.rank, step=progress.step, **inside,
                             cursor=progress.cursor, parts=parts, name=loaded.manifest.name if loaded else None,
                             digest=loaded.digest if loaded else None,
                             state=step_fingerprint(workload, progress, None, assignment.rank, spec.ranks),
                             duration_s=time.monotonic() - started)
        _check_restored(parts, loaded, assignment.rank)
        if not reducer.agree({name: parts[name] for name in REPLICATED if name in parts}, spec.ranks):
            raise StateError("the ranks do not start from the same model and optimizer: build(config) must give the "
                             "same parameters every time it is called with the same seed")
        self._at("recover.restored")
        if self._pipeline is None:
            raise StateError("no input pipeline was started for this attempt")
        started = time.monotonic()
        self._pipeline.start()
        self._history.record("pipeline", assignment.attempt, rank=assignment.rank, step=progress.step,
                             duration_s=time.monotonic() - started)
        self._at("recover.pipeline")
        self._loaded = None
        self.step, self.loss = progress.step, None
        self._staging = self._staging or Staging(assignment.rank, spec.ranks)
        if self._staging.rank != assignment.rank:
            self._staging = Staging(assignment.rank, spec.ranks)
        more_bytes = partial_bytes(workload, self._share(0).rows) if spec.save_every_microbatches else 0
        self._staging.prepare(workload, progress, more_bytes)
        saver = Saver(SaverIdentity(spec.run, assignment.attempt, assignment.rank, spec.ranks), self._objects,
                      self._staging, self._history, report, self._points.bound())
        return RankRun(
            attempt=assignment.attempt, share=self._share(assignment.rank), steps=spec.steps,
            save_every=spec.save_every, save_every_microbatches=spec.save_every_microbatches, device=self.device,
            workload=workload, progress=progress, pipeline=self._pipeline, reducer=gradients, saver=saver,
            history=self._history, at=self._at, on_step=self._on_step, noticed=self._notice.arrived, partial=partial,
            precision=spec.precision, non_finite=spec.non_finite, on_non_finite=self._findings.append,
        )

    @property
    def waits_for_input(self) -> bool:
        return self._pipeline is not None and self._pipeline.waiting

    def interrupt(self, attempt: int) -> None:
        """This attempt is over: the rank stops at its next point, or where it waits for data or for others to join."""
        if self._store is not None and self._store[0] <= attempt:
            self._store = None  # who waits there for one that is dead notices that it is gone
        if self._assignment is not None and self._assignment.attempt <= attempt:
            self._stop.set()
            if self._pipeline is not None:
                self._pipeline.close()
            if self._saver is not None:
                self._saver.cancel()

    def _at(self, point: str) -> None:
        self.ticks += 1
        self.phase = point
        if self._stop.is_set():
            raise Interrupted(f"the supervisor ended the attempt at {point}")
        self._points(point)

    def _store_failed(self, error: Unavailable) -> None:
        self.ticks += 1  # who asks again does not hang
        attempt = self._assignment.attempt if self._assignment is not None else None
        self._history.record("store_failed", attempt, where=error.where, what=error.what)

    def take_findings(self) -> tuple[NonFiniteFound, ...]:
        """What was found since the last call."""
        return tuple(self._findings.popleft() for _ in range(len(self._findings)))

    def _on_step(self, step: int, loss: float) -> None:
        self.step, self.loss = step, loss

    def _start_pipeline(self, first_step: int, first_microbatch: int) -> None:
        assignment, spec = self._here(), self._spec
        if self._pipeline is not None:
            self._pipeline.close()
        self._pipeline = Pipeline(
            assignment.survey.dataset, assignment.survey.plan, self._share(assignment.rank), first_step=first_step,
            last_step=spec.steps, prefetch=spec.prefetch_batches, attempt=assignment.attempt, points=self._points,
            lead=assignment.attempt > 0, read_tasks=spec.read_tasks, first_microbatch=first_microbatch,
        )
        if assignment.attempt == 0:
            self._pipeline.start()  # nothing else is urgent yet; after a restart joining and loading come first

    def _leave(self) -> None:
        reducer.leave_group()
        if self._pipeline is not None:
            self._pipeline.close()
            self._ending, self._pipeline = self._pipeline, None

    def _share(self, rank: int) -> Share:
        return Share(rank, self._spec.ranks, self._spec.global_batch, self._spec.microbatches)

    def _here(self) -> Assignment:
        if self._assignment is None:
            raise StateError("this worker has no rank yet: prepare() comes first")
        return self._assignment


def _check_restored(parts: dict[str, str], loaded: Loaded | None, rank: int) -> None:
    if loaded is None:
        return
    if wrong := wrong_parts(parts, loaded.manifest, rank):
        raise StateError(f"rank {rank}: after restoring {loaded.manifest.name} the live {', '.join(wrong)} differ from "
                         "the manifest: the workload does not take its state back whole")

