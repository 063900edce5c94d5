"""The network of `lab resume`: one hidden layer of 8 units with dropout, 33 parameters (reference B)."""

from __future__ import annotations

import torch
from torch import nn

from chaos.labs.resume_data import DROPOUT, FEATURES, HIDDEN, MEAN_WEIGHT


class Network(nn.Module):
    """x: float64[n, 2] → float64[n]. Its registered buffer is a running mean of the inputs, taken off them."""

    input_mean: torch.Tensor

    def __init__(self) -> None:
        super().__init__()
        self.hidden = nn.Linear(FEATURES, HIDDEN, dtype=torch.float64)
        self.dropout = nn.Dropout(DROPOUT)
        self.output = nn.Linear(HIDDEN, 1, dtype=torch.float64)
        self.register_buffer("input_mean", torch.zeros(FEATURES, dtype=torch.float64))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        if self.training:
            self.input_mean.lerp_(x.mean(0), MEAN_WEIGHT)
        hidden = self.dropout(torch.tanh(self.hidden(x - self.input_mean)))
        result: torch.Tensor = self.output(hidden).squeeze(1)
        return result
