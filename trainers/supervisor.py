"""The supervisor: one attempt after another until the target step is reached (invariants 2, 6, 9).

An attempt: fence → place → form the group → choose → restore → train. Whatever fails ends the attempt; the lost are
killed and their exit confirmed, survivors keep their processes, and the next attempt begins with a new fence. The
supervisor decides nothing that the commit log does not decide: fenced off by another one, it stops.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import asdict
from typing import Any

from ray.exceptions import RayError

from storage.errors import Damaged, Fenced, StoreFull, Unavailable
from storage.history import History
from storage.log import CommitLog, Fence, Publish
from storage.objects import LocalObjects
from storage.retrying import Retrying
from storage.selection import Decision, candidates, decide, ever_published
from trainers import errors
from trainers.blame import repeated
from trainers.choosing import propose, retried
from trainers.errors import GaveUp
from trainers.events import (
    AttemptStarted,
    Chosen,
    DeathDetected,
    Event,
    Finished,
    TrainingStarted,
)
from trainers.group import Group
from trainers.points import KillPoints
from trainers.pool import Pool, Process, Trade
from trainers.predecessors import end_predecessors
from trainers.reports import Heartbeat, Vote
from trainers.spec import Assignment, Candidate, Survey, TrainingSpec
from trainers.telling import Telling
from trainers.watch import AttemptFailed, Lost, Watch, await_survivors, never_came, result_of

# Another attempt would end the same way: these are the user's to mend.
_FATAL = (errors.WorkloadError, errors.DatasetError, errors.StateError, errors.FingerprintMismatch, errors.NonFinite,
          errors.PrecisionUnavailable, StoreFull, Unavailable)


class Supervisor:
    """Trains one run to its target step. Neither starts nor stops Ray, and leaves closing the history to its owner."""

    def __init__(
        self, spec: TrainingSpec, *, points: KillPoints, notify: Callable[[Event], None], history: History,
        pool: Pool, reuse: bool = False,
    ) -> None:
        """reuse: processes that end the run in good order go back to the pool."""
        self._spec, self._points, self._notify, self._history = spec, points, notify, history
        store = points.store(LocalObjects(spec.folder / "store"))
        self._objects = Retrying(store, 0.0, self._store_failed)  # `_next` asks again
        self._log = CommitLog(Retrying(store, spec.unavailable_deadline_s, self._store_failed), spec.run, points)
        self._reuse = reuse
        self._group = Group(spec, points, notify, history, pool)
        self._attempt = 0
        self._survey: Survey | None = None
        self._telling = Telling(self._log, notify)
        self._first_step = self._known = 0
        self._finished = False

    def run(self) -> None:
        """Trains, recovering from every failure. Raises GaveUp, Fenced and the workload's own errors."""
        self._known = len(self._log.read())
        try:
            self._run()
        except Fenced:
            raise
        except Exception as error:
            # Who takes a run over ends our processes first, so its fence may show as any failure.
            if (later := self._fenced_by()) is not None:
                raise Fenced(later) from error
            self._history.record("gave_up", self._attempt, reason=f"{type(error).__name__}: {error}")
            raise

    def _fenced_by(self) -> int | None:
        """The attempt of another supervisor's fence after this one's own, if there is one."""
        fences = [e for e in self._log.read()[self._known :] if isinstance(e, Fence)]
        return fences[-1].attempt if fences and fences[-1].owner != self._history.process else None

    def close(self) -> None:
        """Ends the run's processes, or gives them back. Idempotent; the history stays open for its owner."""
        whole = self._reuse and self._finished
        self._group.close(Trade.of(self._spec, self._survey) if whole and self._survey is not None else None)

    def _run(self) -> None:
        spec, own = self._spec, self._history.process
        self._points.enter(0, "supervisor", None, self._history)
        self._history.record("process", None, role="supervisor", rank=None, pid=own.pid, start_ticks=own.start_ticks,
                             host=own.host, history=self._history.name)
        end_predecessors(spec, self._history)
        self._group.start()
        before: list[BaseException | None] = []
        for number in range(spec.max_attempts):
            try:
                self._one_attempt()
                return
            except AttemptFailed as failure:
                if (later := self._fenced_by()) is not None:
                    raise Fenced(later) from failure
                if number + 1 == spec.max_attempts:
                    raise GaveUp(f"gave up after {spec.max_attempts} attempts, the last one ended by: {failure}; raise "
                                 "max_attempts or look into the history") from failure
                self._clear(failure)
                raised = [each.error for each in failure.lost]
                if again := repeated(before, raised):
                    raise GaveUp(f"{again}: it came in two attempts in a row, so another one would end the same way; "
                                 "mend the workload and start a new run") from failure
                before = raised

    def _one_attempt(self) -> None:
        self._points("recover.fence.before")
        fence = self._log.fence(self._spec.config_digest, self._history.process)
        attempt = self._attempt = fence.attempt
        if attempt > 0:  # attempt 0 was entered before its fence, and its passages are counted on
            self._points.flush()
            self._points.enter(attempt, "supervisor", None, self._history)
        self._history.record("fenced", attempt, seq=fence.seq)
        self._notify(AttemptStarted(attempt))
        self._points("recover.fence.after")
        watch = self._place(attempt)
        decision = self._form_and_choose(attempt, watch)
        self._train(attempt, watch, decision)

    def _place(self, attempt: int) -> Watch:
        """Every rank has a process, the committer too. Raises AttemptFailed if one of them does not start."""
        ranks = [self._group.ranks[rank] for rank in range(self._spec.ranks)]
        for rank, process in enumerate(ranks):
            try:
                self._group.introduce(process, "rank", rank, attempt)
            except RayError as error:
                process.rank = rank
                raise AttemptFailed([never_came(process, error)], {}) from error
        self._surveyed()
        committer = self._group.committer or self._group.start_committer()
        try:
            self._group.introduce(committer, "committer", None, attempt)
        except RayError as error:
            raise AttemptFailed([never_came(committer, error)], {}) from error
        return Watch(ranks, committer, self._group.is_stopped, self._history, self._spec.hang_deadline_s, self._on_beat)

    def _surveyed(self) -> Survey:
        """The first worker's look at the dataset, once. Raises what is wrong with workload or dataset."""
        if self._survey is None:
            survey: Survey = result_of(self._group.ranks[0].actor.survey.remote(), self._group.ranks[0])
            data, plan = survey.dataset, survey.plan
            named = {"path": data.folder, "fingerprint": data.fingerprint, "rows": data.rows}
            code = {"digest": survey.fingerprints.code, "files": list(survey.code_files)}
            self._history.record("dataset", dataset=named, plan=asdict(plan), code=code)
            self._survey = survey
        return self._survey

    def _form_and_choose(self, attempt: int, watch: Watch) -> Decision:
        """All ranks in one group, all holding the same verified checkpoint, and the log says which."""
        started, entries = time.monotonic(), self._log.read()
        found = candidates(entries, attempt)
        if not found and ever_published(entries):
            raise GaveUp("checkpoints were published, but none is left to restore: a fresh start would discard work")
        verdicts: dict[str, str | None] = {}
        decision, candidate = self._next(found, verdicts)
        self._history.record("proposed", attempt, name=candidate.name if candidate else None,
                             duration_s=time.monotonic() - started)
        votes = watch.collect(self._prepare(attempt, candidate), self._spec.recovery_deadline_s)
        self._history.record("formed", attempt, world=self._spec.ranks)
        self._points("recover.formed")
        while candidate is not None:
            self._judge(candidate, votes, verdicts)
            decision, candidate = self._next(found, verdicts)
            if candidate is not None:
                votes = watch.collect(self._load(candidate), self._spec.recovery_deadline_s)
        self._points("recover.choose.before")
        entry = self._log.choose(attempt, decision.parent, decision.candidates)
        chosen = decision.chosen
        name, step = (chosen.name, chosen.step) if chosen else (None, 0)
        self._history.record("chosen", attempt, name=name, digest=chosen.digest if chosen else None, step=step,
                             seq=entry.seq)
        rejected = tuple((c.name, c.reason) for c in decision.candidates if c.status == "rejected")
        self._notify(Chosen(attempt, name, step, rejected))
        self._points("recover.choose.after")
        return decision

    def _next(self, found: tuple[Publish, ...], verdicts: dict[str, str | None]) -> tuple[Decision, Candidate | None]:
        """What is decided so far, and the next candidate that passes the supervisor's own checks, if one is needed.

        Raises NoCandidate when all are damaged.
        """
        while True:
            decision = decide(found, verdicts)
            publish = decision.examine
            if publish is None:
                return decision, None
            try:
                return decision, retried(lambda p=publish: propose(self._objects, p),  # type: ignore[misc]
                                         self._spec.unavailable_deadline_s)
            except Damaged as error:
                verdicts[publish.name] = str(error)

    def _prepare(self, attempt: int, candidate: Candidate | None) -> dict[Any, Process]:
        host, port = result_of(self._group.ranks[0].actor.open_store.remote(attempt), self._group.ranks[0])
        survey, clock = self._surveyed(), self._history.clock
        return {
            process.actor.prepare.remote(Assignment(attempt, rank, host, port, survey, clock), candidate): process
            for rank, process in self._group.ranks.items()
        }

    def _load(self, candidate: Candidate | None) -> dict[Any, Process]:
        return {process.actor.load.remote(candidate): process for process in self._group.ranks.values()}

    def _judge(self, candidate: Candidate, votes: dict[Process, Vote], verdicts: dict[str, str | None]) -> None:
        """The ranks' verdict: one definite no rejects the candidate. Raises GaveUp if it stays unavailable."""
        damaged = [vote.reason for vote in votes.values() if vote.damaged]
        missing = [vote.reason for vote in votes.values() if not vote.ok and not vote.damaged]
        if missing and not damaged:
            raise GaveUp(f"{candidate.name} stays unavailable, so nothing older is taken: {missing[0]}")
        verdicts[candidate.name] = damaged[0] if damaged else None

    def _train(self, attempt: int, watch: Watch, decision: Decision) -> None:
        committer, parent = self._group.committer, decision.parent
        assert committer is not None
        begun = committer.actor.begin.remote(attempt, parent, self._surveyed().fingerprints, self._history.clock)
        watch.collect({begun: committer}, self._spec.recovery_deadline_s)
        calls = {p.actor.train.remote(self._history.clock, committer.actor): p for p in self._group.ranks.values()}
        self._history.record("training", attempt)
        self._notify(TrainingStarted(attempt))
        self._points("supervisor.training")
        self._first_step = (decision.chosen.step if decision.chosen else 0) + 1
        outcomes = watch.collect(calls)
        if not all(outcome.finished for outcome in outcomes.values()):
            raise AttemptFailed([], {})
        for outcome in outcomes.values():
            self._telling.non_finite(outcome.findings)
        self._telling.published()
        self._history.record("finished", attempt, step=self._spec.steps)
        self._finished = True
        self._notify(Finished(self._spec.steps))

    def _store_failed(self, error: Unavailable) -> None:
        self._history.record("store_failed", self._attempt, where=error.where, what=error.what)

    def _on_beat(self, process: Process, beat: Heartbeat) -> None:
        rank = process.rank
        if rank is not None and self._telling.beat(self._attempt, rank, beat) and beat.step >= self._first_step:
            self._group.refill()

    def _clear(self, failure: AttemptFailed) -> None:
        """After a failed attempt: the lost are gone for certain, survivors are idle, everybody is replaced."""
        attempt, committer = self._attempt, self._group.committer
        lost = {each.process: each for each in failure.lost}
        for each in lost.values():
            self._detected(each)
        self._points("recover.detected")
        if fatal := next((each.error for each in lost.values() if isinstance(each.error, _FATAL)), None):
            if isinstance(fatal, errors.NonFinite) and fatal.found is not None:
                self._telling.non_finite([fatal.found])
                await_survivors(failure, lost, self._spec.survivor_deadline_s)  # they stop for the same reason
            raise fatal
        if committer is not None and committer not in lost:
            committer.actor.abandon.remote(attempt)
        for process in self._group.ranks.values():
            if process not in lost:
                process.actor.interrupt.remote(attempt)
        for process in lost:
            self._end(process)
        for each in await_survivors(failure, lost, self._spec.survivor_deadline_s):
            self._detected(each)
            self._end(each.process)
            lost[each.process] = each
        for process in lost:
            if process.role == "committer":
                self._group.committer = None
            else:
                self._group.replace_process(process)
        if self._spec.kill_suspects:
            for process in lost:
                self._group.confirm_exit(process, attempt)

    def _end(self, process: Process) -> None:
        if self._spec.kill_suspects:
            self._group.end(process, "lost to the attempt", self._attempt)
        else:
            self._group.leave(process)

    def _detected(self, lost: Lost) -> None:
        process = lost.process
        member = process.member
        if member is None:
            return
        who = {"pid": member.process.pid, "start_ticks": member.process.start_ticks}
        self._history.record("detected", self._attempt, role=process.role, rank=process.rank, how=lost.how,
                             detail=lost.detail, **who)
        self._notify(DeathDetected(self._attempt, process.role, process.rank, how=lost.how, detail=lost.detail,
                                   **who))

