"""The loop's record under overflow, skips and mixed precision; everything is real but Ray Data and the committer."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch

from storage.history import History, read_history
from storage.objects import LocalObjects
from storage.retrying import Retrying
from trainers.best import BestModel
from trainers.dataset import open_dataset
from trainers.errors import NonFinite
from trainers.events import NonFiniteFound
from trainers.loop import RankRun, train
from trainers.pipeline import PipelineStats
from trainers.plan import Plan
from trainers.reducer import Reducer
from trainers.reports import SaveReport
from trainers.saver import Saver, SaverIdentity
from trainers.source import Microbatch, Share, Span, read_span, to_microbatch
from trainers.staging import Staging
from trainers.state import Progress, seed_everything
from trainers.workload import Batch
from trainers.workloads import tiny

SHARE = Share(0, 1, 8, 2)
Spoil = Callable[[int, torch.Tensor], torch.Tensor]


class Input:
    """The batches that the pipeline would bring, read by the same functions."""

    def __init__(self, folder: Path, steps: int) -> None:
        dataset = open_dataset(folder)
        table = read_span(dataset, Plan(dataset.rows, dataset.group_rows, 4, 7), SHARE, Span(0, 0, steps))
        rows = SHARE.microbatch_rows
        self._batches = iter(to_microbatch(table.slice(at, rows), dataset.columns) for at in range(0, len(table), rows))

    def next(self) -> Microbatch:
        return next(self._batches)

    def stats(self) -> PipelineStats:
        return PipelineStats(0.0, 0.0, 0, 0, 0.0)


class Rig:
    """One rank. `spoil(step, losses)` changes the losses of a step before the backward pass."""

    def __init__(self, place: Path, *, steps: int = 8, spoil: Spoil | None = None, scale: float | None = None,
                 keep_best: bool = False, **settings: Any) -> None:  # fmt: skip
        seed_everything(1, None)
        workload = tiny.build({"optimizer": "sgd", "lr": 0.05, "rows": 40})
        scaler = None if scale is None else torch.amp.GradScaler("cpu", scale, growth_interval=3)
        self.run: RankRun
        self.workload = replace(workload, loss=self._loss, scaler=scaler)
        self._spoil, self._plain = spoil, workload.loss
        self.progress = Progress(best_model=BestModel.of(workload.model) if keep_best else None)
        self.history = History.open(place / "history", "worker", "r1")
        self.found: list[NonFiniteFound] = []
        self.saved: list[int] = []
        self.dtypes: set[torch.dtype] = set()
        workload.model.register_forward_hook(lambda module, given, output: self.dtypes.add(output.dtype))
        store = Retrying(LocalObjects(place / "store"), 0.0)
        saver = Saver(SaverIdentity("r1", 0, 0, 1), store, Staging(0, 1), self.history, self._report,
                      lambda point: None)  # fmt: skip
        self.models: list[dict[str, torch.Tensor]] = []  # before each update
        self.run = RankRun(
            attempt=0, share=SHARE, steps=steps, save_every=3, device=torch.device("cpu"), workload=self.workload,
            progress=self.progress, pipeline=Input(workload.dataset, steps),  # type: ignore[arg-type]
            reducer=Reducer(workload.model, 1), saver=saver, history=self.history, at=self._at,
            on_step=lambda step, loss: None, on_non_finite=self.found.append, **settings,
        )

    def train(self) -> None:
        seed_everything(1, 0)
        train(self.run)

    def _at(self, point: str) -> None:
        if point == "optimizer.before":
            self.models.append({n: p.detach().clone() for n, p in self.workload.model.named_parameters()})

    def _loss(self, model: torch.nn.Module, batch: Batch) -> torch.Tensor:
        losses = self._plain(model, batch)
        return losses if self._spoil is None else self._spoil(self.progress.step + 1, losses)

    def _report(self, report: SaveReport) -> None:
        self.saved.append(report.step)

    def events(self, name: str) -> list[dict[str, Any]]:
        return [line.body for line in read_history(self.history.path).lines if line.event == name]


def at(step: int, value: float) -> Spoil:
    """Multiplies the losses of one step, and so its gradient."""
    return lambda number, losses: losses * value if number == step else losses


def gradient_only(step: int) -> Spoil:
    """A finite loss whose gradient is not: the square root at zero."""
    return lambda number, losses: losses + torch.sqrt(losses * 0) if number == step else losses


def test_every_line_says_step_samples_and_what_a_step_is(tmp_path: Path) -> None:
    rig = Rig(tmp_path)
    rig.train()
    assert [(e["step"], e["samples_seen"], e["step_is"]) for e in rig.events("step")] == [
        (step, 8 * step, "updates done or skipped") for step in range(1, 9)
    ]
    assert rig.events("non_finite") == []


def test_a_scaler_changes_neither_loss_nor_norm_nor_model(tmp_path: Path) -> None:
    """A power of two scales exactly: what is recorded is unscaled, and the run is the same bit for bit."""
    plain, scaled = Rig(tmp_path / "plain"), Rig(tmp_path / "scaled", scale=2.0**12)
    for rig in (plain, scaled):
        rig.train()
    keys = ("loss", "gradient_norm", "lr", "skipped")
    assert [[e[k] for k in keys] for e in plain.events("step")] == [[e[k] for k in keys] for e in scaled.events("step")]
    assert [e["state"]["model"] for e in plain.events("step")] == [e["state"]["model"] for e in scaled.events("step")]
    assert scaled.workload.scaler is not None
    assert scaled.workload.scaler.get_scale() > 2.0**12  # it grew on the way


@pytest.mark.parametrize(
    ("spoil", "what", "loss"), [(at(4, math.nan), "loss", "nan"), (at(4, math.inf), "loss", "inf"),
                                (gradient_only(4), "gradient", None)]
)  # fmt: skip
def test_skip_leaves_the_update_out_and_goes_on(tmp_path: Path, spoil: Spoil, what: str, loss: str | None) -> None:
    rig = Rig(tmp_path, spoil=spoil, non_finite="skip")
    rig.train()
    steps = rig.events("step")
    assert [e["step"] for e in steps if e["skipped"]] == [4]
    assert steps[3]["state"]["model"] == steps[2]["state"]["model"] != steps[4]["state"]["model"]
    assert (rig.progress.step, rig.progress.cursor, rig.progress.updates, rig.progress.skipped) == (8, 64, 7, 1)
    assert rig.workload.scheduler is not None
    assert rig.workload.scheduler.last_epoch == 8
    (event,) = rig.events("non_finite")
    assert (event["step"], event["what"], event["action"], event["rank"]) == (4, what, "skip", 0)
    assert (event["loss"] == loss) if loss else math.isfinite(float.fromhex(event["loss"]))
    assert event["clock"] < steps[3]["clock"]  # before the step's own line
    assert [(found.step, found.what, found.action) for found in rig.found] == [(4, what, "skip")]


@pytest.mark.parametrize(("spoil", "words"), [(at(5, math.nan), "step 5: the loss is nan"),
                                              (gradient_only(5), "step 5: the gradient's norm is nan")])  # fmt: skip
def test_stop_raises_at_once_after_the_save_in_flight(tmp_path: Path, spoil: Spoil, words: str) -> None:
    rig = Rig(tmp_path, spoil=spoil)
    with pytest.raises(NonFinite, match=words) as caught:
        rig.train()
    assert caught.value.found == rig.found[0]
    assert [e["step"] for e in rig.events("step")] == [1, 2, 3, 4]
    assert [(e["step"], e["action"]) for e in rig.events("non_finite")] == [(5, "stop")]
    assert rig.saved == [3]
    assert (rig.progress.step, rig.progress.cursor) == (4, 32)


def test_an_overflow_of_the_scaled_gradient_is_no_matter_of_the_policy(tmp_path: Path) -> None:
    rig = Rig(tmp_path, scale=2.0**20, spoil=gradient_only(2), keep_best=True)
    rig.train()
    (event,) = rig.events("non_finite")
    assert (event["what"], event["action"], float.fromhex(event["scale"])) == ("scaled_gradient", "skip", 2.0**20)
    assert [e["skipped"] for e in rig.events("step")] == [step == 2 for step in range(1, 9)]


def test_a_gradient_that_no_scaling_explains_is(tmp_path: Path) -> None:
    rig = Rig(tmp_path, scale=1.0, spoil=gradient_only(2))
    with pytest.raises(NonFinite, match="step 2: the gradient's norm is nan"):
        rig.train()


def test_a_norm_beyond_single_precision_is_not_taken_for_an_overflow(tmp_path: Path) -> None:
    rig = Rig(tmp_path, steps=1, spoil=at(1, 1e24))
    rig.train()
    (step,) = rig.events("step")
    assert 1e20 < float.fromhex(step["gradient_norm"]) < math.inf
    assert not step["skipped"]


def test_the_best_model_is_the_one_that_had_the_lowest_loss(tmp_path: Path) -> None:
    """Losses are made to fall until step 4 and to rise after it."""
    rig = Rig(tmp_path, keep_best=True, spoil=lambda step, losses: losses / 1000 + abs(step - 4) + 1)
    rig.train()
    best = rig.progress.best_model
    assert best is not None
    assert (rig.progress.best_metric, rig.progress.best_step) == (pytest.approx(1.0, abs=0.1), 4)
    assert len(rig.models) == 8
    assert all(torch.equal(best.parameters[name], kept) for name, kept in rig.models[3].items())
    steps = rig.events("step")
    assert len({e["state"]["model"] for e in steps}) == 8
    assert steps[3]["state"]["best"] == steps[2]["state"]["model"] == steps[7]["state"]["best"]


def test_a_forward_pass_in_bf16(tmp_path: Path) -> None:
    plain, half = Rig(tmp_path / "plain"), Rig(tmp_path / "half", precision="bf16")
    for rig in (plain, half):
        rig.train()
    assert half.dtypes == {torch.bfloat16}
    assert all(p.dtype == torch.float32 for p in half.workload.model.parameters())
    ours, theirs = ([float.fromhex(e["loss"]) for e in rig.events("step")] for rig in (half, plain))
    assert ours != theirs
    assert ours == pytest.approx(theirs, rel=0.5)
