"""A small training in this process: dataset, workload and settings, and Ray Data's reading without Ray.

`build` is a workload like a user's, named `training_kit:build` in a specification.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import torch
from torch import nn

from storage.history import read_history
from trainers.dataset import Dataset, open_dataset, write_shards
from trainers.plan import Plan
from trainers.source import PlanSource
from trainers.spec import TrainingSpec
from trainers.workload import Batch, Config, Workload

ROWS, GROUP_ROWS = 48, 8
CONFIG_DIGEST = "sha256:" + "c" * 64


def write_data(folder: Path) -> Path:
    """48 samples; column `number` is the sample's id, so that it shows what a loss function was given."""
    rng = np.random.Generator(np.random.PCG64(3))
    x = rng.standard_normal((ROWS, 2))
    columns: dict[str, Any] = {"x": x, "y": 3 * x[:, 0] - x[:, 1] + 1, "number": np.arange(ROWS, dtype=np.int64)}
    write_shards(folder, columns, files=2, group_rows=GROUP_ROWS)
    return folder


def data_and_plan(folder: Path, seed: int = 7) -> tuple[Dataset, Plan]:
    dataset = open_dataset(folder)
    return dataset, Plan(dataset.rows, dataset.group_rows, 4, seed)


def squared_error(model: nn.Module, batch: Batch) -> torch.Tensor:
    error: torch.Tensor = (model(batch["x"]).squeeze(1) - batch["y"]) ** 2
    return error


class Forgetful(torch.optim.lr_scheduler.StepLR):
    """Says what its state is, and does not take it back."""

    def load_state_dict(self, state_dict: dict[str, Any]) -> None:
        pass


def build(config: Config) -> Workload:
    """Keys: dataset, dropout (0.3), forgetful (false). In double precision, with all kinds of state but a scaler."""
    model = nn.Sequential(
        nn.Linear(2, 4), nn.BatchNorm1d(4), nn.Dropout(float(config.get("dropout", 0.3))), nn.Linear(4, 1)
    ).double()
    optimizer = torch.optim.Adam(model.parameters(), lr=0.02)
    kind = Forgetful if config.get("forgetful") else torch.optim.lr_scheduler.StepLR
    return Workload(model, optimizer, squared_error, Path(config["dataset"]), kind(optimizer, 2, gamma=0.5))


def training_spec(folder: Path, dataset: Path, **changes: Any) -> TrainingSpec:
    """One rank, eight samples a step in two microbatches, six steps, a save every second step."""
    spec = TrainingSpec(
        run="r1", folder=folder, workload="training_kit:build", workload_config={"dataset": str(dataset)}, seed=7,
        ranks=1, global_batch=8, microbatches=2, steps=6, save_every=2, keep=3, standbys=0, threads_per_rank=1,
        prefetch_batches=2, read_tasks=1, max_attempts=3, hang_deadline_s=60.0, survivor_deadline_s=5.0,
        recovery_deadline_s=30.0, unavailable_deadline_s=0.1, kill_suspects=True, config_digest=CONFIG_DIGEST,
    )  # fmt: skip
    return dataclasses.replace(spec, **changes)


class LocalStream:
    """Stands in for `ray.data.read_datasource`: runs the source's real read tasks here, one after another."""

    def __init__(self, source: PlanSource, *, override_num_blocks: int, concurrency: int) -> None:
        self._tasks = source.get_read_tasks(override_num_blocks)

    def iter_batches(self, *, batch_size: int, batch_format: str, prefetch_batches: int) -> Iterator[pa.Table]:
        assert batch_format == "pyarrow"
        for task in self._tasks:
            for table in task.read_fn():
                for row in range(0, len(table), batch_size):
                    yield table.slice(row, batch_size)


def events(history: Path, name: str) -> list[dict[str, Any]]:
    """The bodies of one kind of event in a history file that is still being written."""
    return [line.body for line in read_history(history).lines if line.event == name]


def flip(path: Path, at: int = -1) -> None:
    """Changes one byte of a file."""
    data = bytearray(path.read_bytes())
    data[at] ^= 1
    path.write_bytes(data)


def make_unavailable(path: Path) -> bytes:
    """A link to itself: reading it is an I/O error for everybody, root too. Returns what was there."""
    data = path.read_bytes()
    path.unlink()
    path.symlink_to(path)
    return data


def make_available(path: Path, data: bytes) -> None:
    path.unlink()
    path.write_bytes(data)
