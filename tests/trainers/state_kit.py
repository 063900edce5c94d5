"""Small workloads whose whole state matters, and the state as a checkpoint would keep it."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import torch
from torch import nn

from trainers.parts import is_replicated
from trainers.state import Progress, json_parts, local_tensors, replicated_tensors
from trainers.workload import Batch, Workload

Make = Callable[[], Workload]


def squared_error(model: nn.Module, batch: Batch) -> torch.Tensor:
    error: torch.Tensor = (model(batch["x"]).squeeze(1) - batch["x"].sum(dim=1)) ** 2
    return error


def network() -> nn.Module:
    """Parameters, buffers (batch statistics) and a use of the torch generator (dropout)."""
    return nn.Sequential(nn.Linear(3, 8), nn.BatchNorm1d(8), nn.ReLU(), nn.Dropout(0.3), nn.Linear(8, 1))


def _workload(
    optimizer: Callable[[nn.Module], torch.optim.Optimizer],
    scheduler: Callable[[torch.optim.Optimizer], torch.optim.lr_scheduler.LRScheduler] | None,
    scaler: Callable[[], torch.amp.GradScaler] | None = None,
) -> Workload:
    torch.manual_seed(5)
    model = network()
    made = optimizer(model)
    schedule, scale = scheduler(made) if scheduler else None, scaler() if scaler else None
    return Workload(model, made, squared_error, Path("nowhere"), schedule, scale)


def _two_groups(model: nn.Module) -> torch.optim.Optimizer:
    first, *others = model.parameters()
    return torch.optim.AdamW([{"params": others, "lr": 0.02}, {"params": [first], "weight_decay": 0.1}], lr=0.01)


def _every_third(optimizer: torch.optim.Optimizer) -> torch.optim.lr_scheduler.LRScheduler:
    return torch.optim.lr_scheduler.StepLR(optimizer, 3, gamma=0.5)


def _falling(optimizer: torch.optim.Optimizer) -> torch.optim.lr_scheduler.LRScheduler:
    return torch.optim.lr_scheduler.LambdaLR(optimizer, lambda step: 1 / (1 + step))


def _one_cycle(optimizer: torch.optim.Optimizer) -> torch.optim.lr_scheduler.LRScheduler:
    return torch.optim.lr_scheduler.OneCycleLR(optimizer, max_lr=0.1, total_steps=50)


def _by_milestones(optimizer: torch.optim.Optimizer) -> torch.optim.lr_scheduler.LRScheduler:
    return torch.optim.lr_scheduler.MultiStepLR(optimizer, [2, 5, 5], gamma=0.5)


def _warm_up_then_milestones(optimizer: torch.optim.Optimizer) -> torch.optim.lr_scheduler.LRScheduler:
    warm_up = torch.optim.lr_scheduler.ConstantLR(optimizer, 0.5, total_iters=2)
    return torch.optim.lr_scheduler.SequentialLR(optimizer, [warm_up, _by_milestones(optimizer)], milestones=[2])


WORKLOADS: dict[str, Make] = {
    "adam_steplr": lambda: _workload(lambda m: torch.optim.Adam(m.parameters(), 0.05), _every_third),
    "momentum_lambdalr": lambda: _workload(lambda m: torch.optim.SGD(m.parameters(), 0.1, momentum=0.9), _falling),
    "adamw_groups_onecycle": lambda: _workload(_two_groups, _one_cycle),
    "momentum_multisteplr": lambda: _workload(
        lambda m: torch.optim.SGD(m.parameters(), 0.1, momentum=0.9), _by_milestones
    ),
    "momentum_sequentiallr": lambda: _workload(
        lambda m: torch.optim.SGD(m.parameters(), 0.1, momentum=0.9), _warm_up_then_milestones
    ),
    "plain_sgd": lambda: _workload(lambda m: torch.optim.SGD(m.parameters(), 0.1), None),
    "amsgrad_scaler": lambda: _workload(
        lambda m: torch.optim.Adam(m.parameters(), 0.05, amsgrad=True), _every_third,
        lambda: torch.amp.GradScaler("cpu", init_scale=8.0, growth_interval=3),
    ),
}  # fmt: skip


def step(workload: Workload, progress: Progress) -> float:
    """One update on data drawn from the torch generator, so that its state decides the trajectory too."""
    x = torch.randn(6, 3)
    workload.optimizer.zero_grad()
    loss = workload.loss(workload.model, {"x": x}).mean()
    if workload.scaler is None:
        loss.backward()  # type: ignore[no-untyped-call]
        workload.optimizer.step()
    else:
        workload.scaler.scale(loss).backward()  # type: ignore[no-untyped-call]
        workload.scaler.step(workload.optimizer)
        workload.scaler.update()
    if workload.scheduler is not None:
        workload.scheduler.step()
    progress.advance(float(loss.detach()), 6, skipped=False)
    return float(loss.detach())


def captured(workload: Workload, progress: Progress) -> tuple[dict[str, torch.Tensor], dict[str, str]]:
    """All tensors, copied, and all texts: what a checkpoint of one rank holds."""
    live = {**replicated_tensors(workload), **local_tensors(workload)}
    assert all(is_replicated(name) or name.startswith(("buffer/", "rng/")) for name in live)
    return {name: tensor.detach().clone() for name, tensor in live.items()}, json_parts(workload, progress)
