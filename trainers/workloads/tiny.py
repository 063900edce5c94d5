"""`tiny`: a model so small that a trial costs little more than its processes, with everything that can be lost:
dropout, batch statistics, momentum, a scheduled rate.
"""

from __future__ import annotations

import numpy as np
import numpy.typing as npt
import torch
from torch import nn

from trainers.workload import Batch, Config, Workload
from trainers.workloads.cache import cached_dataset


def _columns(rows: int) -> dict[str, npt.NDArray[np.generic]]:
    rng = np.random.Generator(np.random.PCG64(20))
    x = rng.standard_normal((rows, 8), dtype=np.float32)
    return {"x": x, "y": (np.sin(x[:, 0]) + x[:, 1] * x[:, 2]).astype(np.float32)}


def loss(model: nn.Module, batch: Batch) -> torch.Tensor:
    """Squared error per sample; float[n]."""
    error: torch.Tensor = (model(batch["x"]).squeeze(1) - batch["y"]) ** 2
    return error


def build(config: Config) -> Workload:
    """Keys: rows, lr, dropout."""
    rows = int(config.get("rows", 96))
    model = nn.Sequential(
        nn.Linear(8, 16), nn.BatchNorm1d(16), nn.ReLU(), nn.Dropout(float(config.get("dropout", 0.2))), nn.Linear(16, 1)
    )
    optimizer = torch.optim.Adam(model.parameters(), lr=float(config.get("lr", 0.01)))
    scheduler = torch.optim.lr_scheduler.StepLR(optimizer, step_size=5, gamma=0.9)
    folder = cached_dataset(f"tiny-1-{rows}", lambda: _columns(rows), files=3, group_rows=16)
    return Workload(model, optimizer, loss, folder, scheduler)
