"""`linreg`: y = 3x + 2 on 16 points, two double-precision parameters, SGD with momentum 0.8, rate 0.02.

The task of a classic resume exercise: small enough to check by hand. The order of samples is the plan's.
"""

from __future__ import annotations

import numpy as np
import torch
from torch import nn

from trainers.workload import Batch, Config, Workload
from trainers.workloads import recipe
from trainers.workloads.cache import cached_dataset


class Line(nn.Module):
    """x: float64[n] → w·x + b, float64[n]."""

    def __init__(self) -> None:
        super().__init__()
        self.w = nn.Parameter(torch.zeros((), dtype=torch.float64))
        self.b = nn.Parameter(torch.zeros((), dtype=torch.float64))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.w * x + self.b


def loss(model: nn.Module, batch: Batch) -> torch.Tensor:
    """Squared error per sample; float64[n]."""
    error: torch.Tensor = (model(batch["x"]) - batch["y"]) ** 2
    return error


def build(config: Config) -> Workload:
    """Keys: lr, momentum."""
    recipe.require_known(config, "lr", "momentum")
    x = (np.arange(16, dtype=np.float64) - 7.5) / 4
    model = Line()
    optimizer = torch.optim.SGD(
        model.parameters(), lr=float(config.get("lr", 0.02)), momentum=float(config.get("momentum", 0.8))
    )
    folder = cached_dataset("linreg-1", lambda: {"x": x, "y": 3 * x + 2}, files=2, group_rows=4)
    return Workload(model, optimizer, loss, folder)
