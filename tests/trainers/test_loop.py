"""The training loop on real parts: accumulation equals one big batch, and the ledger says what was consumed."""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from torch import nn
from training_kit import build, data_and_plan, events, squared_error, write_data

from storage.digests import bulk_digest, sample_content_digests
from storage.history import History
from storage.ledger import LedgerRows, SegmentMeta, decode_segment
from storage.objects import LocalObjects
from storage.retrying import Retrying
from trainers.dataset import Dataset, read_samples
from trainers.errors import Interrupted, NonFinite, WorkloadError
from trainers.loop import Consumed, RankRun, accumulate, train
from trainers.pipeline import Pipeline
from trainers.plan import Plan
from trainers.points import NoPoints
from trainers.reducer import Reducer
from trainers.reports import SaveReport
from trainers.saver import Saver, SaverIdentity
from trainers.source import Microbatch, Share, to_microbatch
from trainers.staging import Staging
from trainers.state import Progress
from trainers.workload import Batch, Workload

B = 8  # the global batch


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_data(tmp_path_factory.mktemp("loop") / "data")


def linear(folder: Path, *, scaler: torch.amp.GradScaler | None = None) -> Workload:
    """No dropout and no batch statistics: the same whatever the microbatches are."""
    torch.manual_seed(5)
    model = nn.Linear(2, 1).double()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1, momentum=0.9)
    schedule = torch.optim.lr_scheduler.StepLR(optimizer, 2, gamma=0.5)
    return Workload(model, optimizer, squared_error, folder, schedule, scaler)


class Rig:
    """One rank's run, with everything real but the committer, which accepts what it gets."""

    def __init__(
        self, place: Path, workload: Workload, share: Share, *, steps: int = 6, save_every: int = 2, first: int = 0,
        attempt: int = 1, pipeline: type[Pipeline] = Pipeline,
    ) -> None:  # fmt: skip
        self.data = data_and_plan(workload.dataset)
        self.objects, self.history = LocalObjects(place / "store"), History.open(place / "history", "worker", "r1")
        self.reports: list[SaveReport] = []
        self.points: list[str] = []
        self.told: list[tuple[int, float]] = []
        self.then: Callable[[str], None] = lambda point: None
        saver = Saver(
            SaverIdentity("r1", attempt, share.rank, share.ranks), Retrying(self.objects, 0.0),
            Staging(share.rank, share.ranks), self.history, self.reports.append, lambda point: None,
        )  # fmt: skip
        source = pipeline(*self.data, share, first_step=first, last_step=steps, prefetch=2, attempt=attempt,
                          points=NoPoints(), lead=True)  # fmt: skip
        source.start()
        self.run = RankRun(
            attempt, share, steps, save_every, torch.device("cpu"), workload, Progress(first, first * B, first * B),
            source, Reducer(workload.model, 1), saver, self.history, self._at,
            lambda step, loss: self.told.append((step, loss)),
        )  # fmt: skip

    def _at(self, point: str) -> None:
        self.points.append(point)
        self.then(point)

    def steps(self) -> list[dict[str, Any]]:
        return events(self.history.path, "step")

    def segments(self) -> list[tuple[LedgerRows, SegmentMeta]]:
        paths = [file.path for report in self.reports for file in report.files if file.kind == "ledger"]
        return [decode_segment(self.objects.read(path), path) for path in paths]


def samples(data: tuple[Dataset, Plan], step: int) -> tuple[torch.Tensor, torch.Tensor]:
    """x and y of the whole global batch, read here."""
    table = read_samples(data[0], data[1].sample_ids(np.arange(step * B, (step + 1) * B)))
    x = np.stack(table["x"].to_numpy())
    return torch.tensor(x), torch.tensor(table["y"].to_numpy())


@pytest.mark.parametrize("microbatches", [1, 2, 4, 8])
def test_accumulation_equals_one_big_batch(tmp_path: Path, folder: Path, microbatches: int) -> None:
    rig = Rig(tmp_path, linear(folder), Share(0, 1, B, microbatches))
    train(rig.run)

    plain = linear(folder)  # as one would write it by hand: the mean over the global batch, one backward
    losses = []
    for step in range(6):
        x, y = samples(rig.data, step)
        plain.optimizer.zero_grad()
        loss = ((plain.model(x).squeeze(1) - y) ** 2).mean()
        loss.backward()  # type: ignore[no-untyped-call]
        plain.optimizer.step()
        assert plain.scheduler is not None
        plain.scheduler.step()
        losses.append(float(loss.detach()))
    for ours, theirs in zip(rig.run.workload.model.parameters(), plain.model.parameters(), strict=True):
        torch.testing.assert_close(ours, theirs, rtol=1e-12, atol=1e-14)
    assert [loss for _step, loss in rig.told] == pytest.approx(losses, rel=1e-12)
    assert [float.fromhex(event["loss"]) for event in rig.steps()] == [loss for _step, loss in rig.told]
    assert rig.run.progress.loss_tail == [loss for _step, loss in rig.told]


def test_the_gradients_of_all_ranks_add_up_to_those_of_the_big_batch(tmp_path: Path, folder: Path) -> None:
    total: list[torch.Tensor] = []
    losses = 0.0
    for rank, microbatches in ((0, 2), (1, 4)):
        rig = Rig(tmp_path / str(rank), linear(folder), Share(rank, 2, B, microbatches))
        losses += accumulate(rig.run, 0, Consumed(0))
        own = [p.grad.clone() for p in rig.run.workload.model.parameters() if p.grad is not None]
        total = [a + b for a, b in zip(total, own, strict=True)] if total else own
    plain = linear(folder)
    x, y = samples(rig.data, 0)
    loss = squared_error(plain.model, {"x": x, "y": y}).mean()
    loss.backward()  # type: ignore[no-untyped-call]
    for ours, parameter in zip(total, plain.model.parameters(), strict=True):
        torch.testing.assert_close(ours, parameter.grad, rtol=1e-12, atol=1e-14)
    assert losses / B == pytest.approx(float(loss.detach()), rel=1e-12)


class Meddling(Pipeline):
    """Delivers something else than the plan says: two samples exchanged, one value changed, at the third microbatch."""

    count = 0

    def next(self) -> Microbatch:
        batch = super().next()
        self.count += 1
        if self.count == 3:
            batch = Microbatch(batch.positions, batch.sample_ids[::-1].copy(), batch.columns)
            batch.columns["x"][0, 0] += 1.0
        return batch


def test_ids_and_digests_are_read_off_the_batch_that_was_consumed(tmp_path: Path, folder: Path) -> None:
    """Not computed from the plan: else a wrong batch would leave a right ledger."""
    given: list[Batch] = []

    def loss(model: nn.Module, batch: Batch) -> torch.Tensor:
        given.append({name: tensor.clone() for name, tensor in batch.items()})
        return squared_error(model, batch)

    made = linear(folder)
    workload = Workload(made.model, made.optimizer, loss, made.dataset, made.scheduler)
    rig = Rig(tmp_path, workload, Share(0, 1, B, 2), steps=4, save_every=4, pipeline=Meddling)
    train(rig.run)
    ((rows, _meta),) = rig.segments()
    digests = [sample_content_digests({name: t.numpy() for name, t in batch.items()}) for batch in given]
    assert rows.content.tolist() == np.concatenate(digests).tolist()
    planned = rig.data[1].sample_ids(np.arange(4 * B))
    assert rows.sample_id[:8].tolist() == planned[:8].tolist()
    assert rows.sample_id[8:12].tolist() == planned[8:12][::-1].tolist()
    table = read_samples(rig.data[0], planned)
    columns = to_microbatch(table.append_column("__position", table["number"]).append_column(
        "__sample_id", table["number"]), rig.data[0].columns).columns  # fmt: skip
    assert np.flatnonzero(sample_content_digests(columns) != rows.content).tolist() == [8]
    ids = [bulk_digest(np.ascontiguousarray(rows.sample_id[s * B : (s + 1) * B], dtype="<i8")) for s in range(4)]
    assert [event["ids"] for event in rig.steps()] == ids


@pytest.mark.parametrize(("first", "save_every"), [(0, 2), (2, 2), (1, 4), (0, 99)])
def test_segments_cover_every_position_once_from_the_cursor_on(
    tmp_path: Path, folder: Path, first: int, save_every: int
) -> None:
    rig = Rig(tmp_path, linear(folder), Share(0, 1, B, 2), first=first, save_every=save_every)
    train(rig.run)
    found = rig.segments()
    due = [step for step in range(first + 1, 7) if step % save_every == 0 or step == 6]
    assert [meta.step for _rows, meta in found] == due
    assert [(meta.first_step, meta.last_step) for _rows, meta in found] == [
        (before, step - 1) for before, step in itertools.pairwise([first, *due])
    ]
    together = LedgerRows.concatenate([rows for rows, _meta in found])
    assert together.position.tolist() == list(range(first * B, 6 * B))
    assert together.step.tolist() == [p // B for p in range(first * B, 6 * B)]
    assert together.microbatch.tolist() == [p % B // 4 for p in range(first * B, 6 * B)]
    assert together.sample_id.tolist() == rig.data[1].sample_ids(together.position).tolist()
    assert (rig.run.progress.step, rig.run.progress.cursor) == (6, 6 * B)


STEP = [
    "step.begin", *["microbatch.fetched", "microbatch.forward", "microbatch.backward"] * 2, "reduce.before",
    "reduce.after", "optimizer.before", "optimizer.after", "scheduler.after", "step.end",
]  # fmt: skip


@pytest.mark.parametrize("attempt", [0, 1])
def test_the_points_of_a_step(tmp_path: Path, folder: Path, attempt: int) -> None:
    rig = Rig(tmp_path, linear(folder), Share(0, 1, B, 2), steps=2, attempt=attempt)
    train(rig.run)
    assert rig.points == [*STEP, *(["recover.first_step"] if attempt else []), *STEP]


@pytest.mark.parametrize("point", STEP)
def test_wherever_it_stops_nothing_has_advanced_in_part(tmp_path: Path, folder: Path, point: str) -> None:
    """Counter, cursor, counts and losses move together, after the scheduler."""
    rig = Rig(tmp_path, linear(folder), Share(0, 1, B, 2))

    def strike(name: str) -> None:
        if name == point and rig.run.progress.step == (3 if point == "step.end" else 2):
            raise Interrupted("struck")

    rig.then = strike
    with pytest.raises(Interrupted, match="struck"):
        train(rig.run)
    progress, done = rig.run.progress, 3 if point == "step.end" else 2
    assert (progress.step, progress.cursor, progress.samples_seen, progress.updates, progress.loss_count) == (
        done, done * B, done * B, done, done,
    )  # fmt: skip
    assert [step for step, _loss in rig.told] == list(range(1, done + 1))
    rig.run.saver.wait()
    assert [report.step for report in rig.reports] == [2]


def test_the_rate_that_is_recorded_is_the_one_that_was_used(tmp_path: Path, folder: Path) -> None:
    rig = Rig(tmp_path, linear(folder), Share(0, 1, B, 2))
    train(rig.run)
    rates = [[float.fromhex(rate) for rate in event["lr"]] for event in rig.steps()]
    assert rates == [[0.1], [0.1], [0.05], [0.05], [0.025], [0.025]]


def _spoilt(loss: float) -> Callable[[nn.Module, Batch], torch.Tensor]:
    """The loss function, times `loss` in one microbatch of the second step."""
    return _changed_once(lambda losses: losses * loss)


def _changed_once(change: Callable[[torch.Tensor], torch.Tensor]) -> Callable[[nn.Module, Batch], torch.Tensor]:
    seen = itertools.count()

    def spoil(model: nn.Module, batch: Batch) -> torch.Tensor:
        losses = squared_error(model, batch)
        return change(losses) if next(seen) == 2 else losses

    return spoil


@pytest.mark.parametrize("loss", [math.nan, math.inf])
def test_a_loss_that_is_not_finite_stops_before_it_does_harm(tmp_path: Path, folder: Path, loss: float) -> None:
    made = linear(folder)
    rig = Rig(tmp_path, Workload(made.model, made.optimizer, _spoilt(loss), folder, made.scheduler), Share(0, 1, B, 2))
    with pytest.raises(NonFinite, match=f"step 2: the loss is {loss}; stopping by the run's policy"):
        train(rig.run)
    assert all(bool(torch.isfinite(p).all()) for p in made.model.parameters())
    assert rig.run.progress.step == 1


def test_a_step_that_the_scaler_skips_is_still_a_step(tmp_path: Path, folder: Path) -> None:
    made = linear(folder, scaler=torch.amp.GradScaler("cpu", init_scale=4.0))
    overflow = _changed_once(lambda losses: losses + torch.sqrt(losses * 0))  # a finite loss, a gradient that is not
    rig = Rig(
        tmp_path, Workload(made.model, made.optimizer, overflow, folder, made.scheduler, made.scaler),
        Share(0, 1, B, 2), save_every=1,
    )  # fmt: skip
    kept: list[list[torch.Tensor]] = []
    rig.then = lambda point: (
        kept.append([p.detach().clone() for p in made.model.parameters()]) if point.startswith("optimizer.") else None
    )
    train(rig.run)
    progress = rig.run.progress
    assert (progress.step, progress.updates, progress.skipped, progress.cursor) == (6, 5, 1, 6 * B)
    assert [event["skipped"] for event in rig.steps()] == [False, True, False, False, False, False]
    moved = [not all(map(torch.equal, kept[2 * step], kept[2 * step + 1])) for step in range(6)]
    assert moved == [True, False, True, True, True, True]
    assert [meta.step for _rows, meta in rig.segments()] == [1, 2, 3, 4, 5, 6]


def test_scaling_changes_no_number(tmp_path: Path, folder: Path) -> None:
    ends = []
    for scaler in (None, torch.amp.GradScaler("cpu", init_scale=1024.0)):
        rig = Rig(tmp_path / str(scaler is None), linear(folder, scaler=scaler), Share(0, 1, B, 2))
        train(rig.run)
        ends.append([p.tolist() for p in rig.run.workload.model.parameters()])
    assert ends[0] == ends[1]


def test_a_loss_function_that_forms_the_mean_is_refused(tmp_path: Path, folder: Path) -> None:
    made = linear(folder)

    def mean(model: nn.Module, batch: Batch) -> torch.Tensor:
        return squared_error(model, batch).mean()

    rig = Rig(tmp_path, Workload(made.model, made.optimizer, mean, folder), Share(0, 1, B, 2))
    with pytest.raises(WorkloadError, match=r"returned shape \(\) for 4 samples: return one loss per sample"):
        train(rig.run)


def test_a_save_that_failed_is_not_survived(tmp_path: Path, folder: Path) -> None:
    """Also the very last one, after which no boundary follows."""
    rig = Rig(tmp_path, build({"dataset": folder}), Share(0, 1, B, 2), save_every=6)
    with rig.objects.open_bulk("shards/s00000006-a0001-r0000.safetensors"):
        pass
    with pytest.raises(Exception, match="already exists"):
        train(rig.run)
