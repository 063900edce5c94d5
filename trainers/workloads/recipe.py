"""Optimizer, schedule and gradient scaler of a built-in workload, by its config. All of them are torch's own.

- `optimizer`: `adamw`, `adam` or `sgd`; `lr` and `weight_decay` of any of them, `momentum` of `sgd` (0.9 if left out).
- `schedule`: `constant`; `step`, times `gamma` every `step_size` steps; `cosine`, a linear warm-up over `warmup_steps`
  and then half a cosine, down to 0 at `total_steps`, from where torch's cosine would rise again.
- `scaler`: true for a gradient scaler, with `scaler_scale` at first, doubled after `scaler_growth_interval` steps
  without an overflow.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

import torch
from torch.optim import Adam, AdamW, Optimizer
from torch.optim.lr_scheduler import CosineAnnealingLR, LinearLR, LRScheduler, SequentialLR, StepLR

from trainers.workload import Config

KEYS = ("optimizer", "lr", "weight_decay", "momentum", "schedule", "step_size", "gamma", "warmup_steps", "total_steps",
        "scaler", "scaler_scale", "scaler_growth_interval")  # fmt: skip


def require_known(config: Config, *keys: str) -> None:
    """Raises ValueError for a key that is none of these: a misspelt one would silently change nothing."""
    unknown = sorted(set(config) - set(keys))
    if unknown:
        raise ValueError(f"config has no {', '.join(unknown)}; it may have {', '.join(sorted(keys))}")


def optimizer(config: Config, parameters: Iterable[torch.nn.Parameter], defaults: Mapping[str, Any]) -> Optimizer:
    """Raises ValueError for a name that is none of the three."""
    values = {"weight_decay": 0.0, "momentum": 0.9, **defaults, **config}
    lr, decay = float(values["lr"]), float(values["weight_decay"])
    match values["optimizer"]:
        case "adamw":
            return AdamW(parameters, lr=lr, weight_decay=decay)
        case "adam":
            return Adam(parameters, lr=lr, weight_decay=decay)
        case "sgd":
            return torch.optim.SGD(parameters, lr=lr, momentum=float(values["momentum"]), weight_decay=decay)
    raise ValueError(f"optimizer is {values['optimizer']!r}: it must be adamw, adam or sgd")


def schedule(config: Config, made: Optimizer, defaults: Mapping[str, Any]) -> LRScheduler | None:
    """None for a constant rate. Raises ValueError for a name that is none of the three."""
    values = {"warmup_steps": 0, "total_steps": 60, "step_size": 5, "gamma": 0.9, **defaults, **config}
    warmup, total = int(values["warmup_steps"]), int(values["total_steps"])
    match values["schedule"]:
        case "constant":
            return None
        case "step":
            return StepLR(made, int(values["step_size"]), gamma=float(values["gamma"]))
        case "cosine" if warmup < 2:
            return CosineAnnealingLR(made, max(1, total - warmup))
        case "cosine":
            rise = LinearLR(made, start_factor=1 / warmup, total_iters=warmup - 1)
            return SequentialLR(made, [rise, CosineAnnealingLR(made, max(1, total - warmup))], [warmup])
    raise ValueError(f"schedule is {values['schedule']!r}: it must be constant, step or cosine")


def scaler(config: Config) -> torch.amp.GradScaler | None:
    """For the device that ranks compute on."""
    if not config.get("scaler", False):
        return None
    return torch.amp.GradScaler(
        "cuda" if torch.cuda.is_available() else "cpu", init_scale=float(config.get("scaler_scale", 2.0**16)),
        growth_interval=int(config.get("scaler_growth_interval", 2000)),
    )
