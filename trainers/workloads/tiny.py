"""`tiny`: a model so small that a trial costs little more than its processes, with everything that can be lost:
dropout, batch statistics, momentum, a scheduled rate.
"""

from __future__ import annotations

import numpy as np
import numpy.typing as npt
import torch
from torch import nn

from trainers.workload import Batch, Config, Workload
from trainers.workloads import recipe
from trainers.workloads.cache import cached_dataset

_RECIPE = {"optimizer": "adam", "lr": 0.01, "schedule": "step"}


def _columns(rows: int) -> dict[str, npt.NDArray[np.generic]]:
    rng = np.random.Generator(np.random.PCG64(20))
    x = rng.standard_normal((rows, 8), dtype=np.float32)
    return {"x": x, "y": (np.sin(x[:, 0]) + x[:, 1] * x[:, 2]).astype(np.float32)}


def loss(model: nn.Module, batch: Batch) -> torch.Tensor:
    """Squared error per sample; float[n]."""
    error: torch.Tensor = (model(batch["x"]).squeeze(1) - batch["y"]) ** 2
    return error


def build(config: Config) -> Workload:
    """Keys: rows, dropout, and those of `recipe`."""
    recipe.require_known(config, "rows", "dropout", *recipe.KEYS)
    rows = int(config.get("rows", 96))
    model = nn.Sequential(
        nn.Linear(8, 16), nn.BatchNorm1d(16), nn.ReLU(), nn.Dropout(float(config.get("dropout", 0.2))), nn.Linear(16, 1)
    )
    optimizer = recipe.optimizer(config, model.parameters(), _RECIPE)
    scheduler = recipe.schedule(config, optimizer, _RECIPE)
    folder = cached_dataset(f"tiny-1-{rows}", lambda: _columns(rows), files=3, group_rows=16)
    return Workload(model, optimizer, loss, folder, scheduler, recipe.scaler(config))
