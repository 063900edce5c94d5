"""The training loop: gradient accumulation, reduction, update, and the moment at which everything advances together.

Update `step` consumes plan positions [step·B, (step+1)·B), B the global batch. Step counter, cursor and ledger
advance in one place, after the scheduler and before a save may begin (invariants 3, 4, 5).
"""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass, field
from functools import cached_property

import numpy as np
import numpy.typing as npt
import torch

from storage.digests import bulk_digest
from storage.history import History
from storage.ledger import LedgerRows
from trainers.accumulation import Partial, SaveSchedule
from trainers.errors import Interrupted, NonFinite, WorkloadError
from trainers.events import NonFiniteFound, What
from trainers.fingerprint import Views, step_fingerprint
from trainers.pipeline import Pipeline
from trainers.reducer import Reducer
from trainers.saver import Saver
from trainers.source import Microbatch, Share
from trainers.spec import Policy, Precision
from trainers.state import Progress
from trainers.update import STEP_IS, advance_schedule, autocast, not_finite, scale_of, update, widened
from trainers.workload import Batch, Workload


@dataclass
class Consumed:
    """Ledger rows since the last save, read off the batches that the forward passes consumed.

    sample_ids: of the step under way alone, microbatch by microbatch, those before a restore included.
    """

    first_step: int
    first_microbatch: int = 0
    rows: list[LedgerRows] = field(default_factory=list)
    sample_ids: list[npt.NDArray[np.int64]] = field(default_factory=list)

    def note(self, step: int, microbatch: int, batch: Microbatch) -> None:
        n = len(batch.sample_ids)
        if microbatch == 0:
            self.sample_ids = []
        self.sample_ids.append(batch.sample_ids)
        steps, microbatches = np.full(n, step, dtype=np.int64), np.full(n, microbatch, dtype=np.int32)
        self.rows.append(LedgerRows(batch.positions, batch.sample_ids, batch.content(), steps, microbatches))

    def take(self, step: int, microbatch: int = 0) -> tuple[LedgerRows, int, int]:
        """All rows since the last call with the first of their steps and microbatches; the next begin at these."""
        taken = LedgerRows.concatenate(self.rows), self.first_step, self.first_microbatch
        self.rows, self.first_step, self.first_microbatch = [], step, microbatch
        return taken

    def step_ids(self) -> str:
        """Digest of the sample ids of the step, int64 little-endian, in order."""
        return bulk_digest(*(np.ascontiguousarray(ids, dtype="<i8") for ids in self.sample_ids))


@dataclass
class RankRun:
    """Everything that one rank needs to train; built by `rank.py`. `at` is called at every point and may not return."""

    attempt: int
    share: Share
    steps: int
    save_every: int
    device: torch.device
    workload: Workload
    progress: Progress
    pipeline: Pipeline
    reducer: Reducer
    saver: Saver
    history: History
    at: Callable[[str], None]
    on_step: Callable[[int, float], None]
    precision: Precision = "fp32"
    non_finite: Policy = "stop"
    on_non_finite: Callable[[NonFiniteFound], None] = lambda found: None
    save_every_microbatches: int | None = None
    partial: Partial | None = None  # of the step that the restored checkpoint lies in
    views: Views = field(default_factory=Views)
    noticed: Callable[[], bool] = lambda: False  # whether this process has to go: `notice.py`
    microbatches_done: list[float] = field(default_factory=list)  # of the update under way, time.monotonic()

    @cached_property
    def schedule(self) -> SaveSchedule:
        """When a save falls due."""
        return SaveSchedule(self.steps, self.share.microbatches, self.save_every, self.save_every_microbatches)


@dataclass(frozen=True)
class StepResult:
    """What one update did. `loss`: mean over the global batch; `rates`: of each parameter group, before the update.

    gradient_norm: of the reduced gradient, unscaled. skipped: parameters and the optimizer's state are as before.
    norm_s: what the norm took, which is computed for the record alone.
    """

    loss: float
    gradient_norm: float
    rates: list[float]
    skipped: bool
    norm_s: float = 0.0


def train(run: RankRun) -> None:
    """Trains from run.progress.step to run.steps. Raises Interrupted, NonFinite and what the workload raises."""
    run.workload.model.train()
    first, partial = run.progress.step, run.partial
    consumed = Consumed(first) if partial is None else Consumed(first, partial.microbatch, [], [partial.sample_ids])
    for step in range(first, run.steps):
        started, wait_before_s = time.monotonic(), run.pipeline.stats().wait_s
        run.microbatches_done.clear()
        run.at("step.begin")
        loss_sum = accumulate(run, step, consumed, partial if step == first else None)
        run.at("reduce.before")
        total, leaving = run.reducer.reduce(loss_sum, run.noticed())
        loss = total / run.share.global_batch
        run.at("reduce.after")
        scale = scale_of(run.workload)
        asked = time.perf_counter()
        gradient_norm = run.reducer.norm() / scale
        norm_s = time.perf_counter() - asked
        trouble = not_finite(loss, gradient_norm, scale)
        if trouble is not None:
            meet_non_finite(run, trouble, loss, gradient_norm, scale)
        if run.progress.best_model is not None and run.progress.is_best(loss):
            run.progress.best_model.take(run.workload.model)
        rates = [float(group["lr"]) for group in run.workload.optimizer.param_groups]
        run.at("optimizer.before")
        skipped = update(run.workload, withheld=trouble is not None)
        run.at("optimizer.after")
        advance_schedule(run.workload, skipped=skipped)
        run.at("scheduler.after")
        run.progress.advance(loss, run.share.global_batch, skipped=skipped)
        record_step(run, consumed, StepResult(loss, gradient_norm, rates, skipped, norm_s), started, wait_before_s)
        run.at("step.end")
        if step == first and run.attempt > 0:
            run.at("recover.first_step")
        if leaving:
            run.history.record("noticed", run.attempt, rank=run.share.rank, step=run.progress.step, own=run.noticed())
        if leaving or run.schedule.due(run.progress.step):
            run.saver.save(run.workload, run.progress, *consumed.take(run.progress.step))
        if leaving and run.noticed():
            leave_behind(run)
    run.saver.wait()


def accumulate(run: RankRun, step: int, consumed: Consumed, partial: Partial | None = None) -> float:
    """Forward and backward of every microbatch, or of those left after `partial`; saves between them if one is due.

    Returns the sum of the samples' losses on this rank.
    """
    loss_sum, first = (partial.loss_sum, partial.microbatch) if partial else (0.0, 0)
    if partial is None:
        run.reducer.zero()
    scaler = run.workload.scaler
    for microbatch in range(first, run.share.microbatches):
        batch = run.pipeline.next()
        run.at("microbatch.fetched")
        consumed.note(step, microbatch, batch)
        with autocast(run.precision, run.device):
            losses = run.workload.loss(run.workload.model, to_device(batch, run.device))
        if losses.shape != (len(batch.sample_ids),):
            raise WorkloadError(f"loss(model, batch) returned shape {tuple(losses.shape)} for "
                                f"{len(batch.sample_ids)} samples: return one loss per sample")
        run.at("microbatch.forward")
        scaled = widened(losses).sum() / run.share.global_batch
        (scaler.scale(scaled) if scaler is not None else scaled).backward()  # type: ignore[no-untyped-call]
        run.microbatches_done.append(time.monotonic())
        run.at("microbatch.backward")
        loss_sum += float(losses.detach().double().sum())
        done = microbatch + 1
        if done < run.share.microbatches and run.schedule.due(step, done):
            so_far = Partial.now(run.workload, run.share, step, done, loss_sum, consumed.sample_ids)
            run.saver.save(run.workload, run.progress, *consumed.take(step, done), so_far)
    return loss_sum


def leave_behind(run: RankRun) -> None:
    """This process has to go, and goes once all it has trained is published. The others wait for it in the next step.

    Raises Interrupted, and what the save raises.
    """
    run.saver.wait()
    run.history.record("leaving", run.attempt, rank=run.share.rank, step=run.progress.step)
    raise Interrupted(f"a SIGTERM gave notice; step {run.progress.step} is published")


def to_device(batch: Microbatch, device: torch.device) -> Batch:
    """Tensors over the very arrays that the ledger digests; copied only where there is another device."""
    return {name: torch.from_numpy(values).to(device) for name, values in batch.columns.items()}


def meet_non_finite(run: RankRun, what: What, loss: float, gradient_norm: float, scale: float) -> None:
    """Records it before anything else happens, tells the supervisor, and raises NonFinite if the policy is to stop."""
    action: Policy = "skip" if what == "scaled_gradient" else run.non_finite
    found = NonFiniteFound(run.attempt, run.progress.step + 1, what, action, loss, gradient_norm, scale)
    run.history.record("non_finite", run.attempt, rank=run.share.rank, step=found.step, what=what, action=action,
                       loss=loss.hex(), gradient_norm=gradient_norm.hex(), scale=scale.hex())
    run.on_non_finite(found)
    if action == "stop":
        run.saver.wait()  # a save in flight gets published: the run can go on from it
        raise NonFinite(f"{found} by the run's policy (non_finite: stop), every rank alike. What was published is "
                        "whole. Lower the rate, check the data, or set non_finite: skip in a new run", found)


def record_step(run: RankRun, consumed: Consumed, result: StepResult, started: float, wait_before_s: float) -> None:
    """One line of history: what the step did, bit for bit, and where its time went."""
    stats, total_s = run.pipeline.stats(), time.monotonic() - started
    wait_s, asked = stats.wait_s - wait_before_s, time.perf_counter()
    share = (run.share.rank, run.share.ranks)
    state, ids = step_fingerprint(run.workload, run.progress, run.views, *share), consumed.step_ids()
    fingerprint_s = result.norm_s + time.perf_counter() - asked
    run.history.record(
        "step", run.attempt, rank=run.share.rank, step=run.progress.step, step_is=STEP_IS, loss=result.loss.hex(),
        lr=[rate.hex() for rate in result.rates], gradient_norm=result.gradient_norm.hex(),
        state=state, samples_seen=run.progress.samples_seen, ids=ids, skipped=result.skipped,
        fingerprint_s=round(fingerprint_s, 6), wait_s=round(wait_s, 6), train_s=round(total_s - wait_s, 6),
        prepare_s=round(stats.prepare_s, 6), microbatch_s=[round(at - started, 6) for at in run.microbatches_done],
        queue_depth=stats.depth, samples_per_s=round(stats.samples_per_s, 1),
    )
    run.on_step(run.progress.step, result.loss)
