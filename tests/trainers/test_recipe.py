"""Optimizers and schedules of the built-in workloads: torch's own, and back exactly from a checkpoint at any step."""

from __future__ import annotations

import itertools
import math
from pathlib import Path

import pytest
import torch
from state_kit import captured, network, squared_error, step

from trainers.errors import WorkloadError
from trainers.state import Progress, live_digests, restore
from trainers.workload import Workload, build
from trainers.workloads import recipe

NONE: dict[str, object] = {"lr": 0.1}
COSINE = {"schedule": "cosine", "warmup_steps": 4, "total_steps": 12}
SCHEDULES = [{"schedule": "constant"}, {"schedule": "step", "step_size": 3, "gamma": 0.5}, COSINE,
             {**COSINE, "warmup_steps": 0}]  # fmt: skip
OPTIMIZERS = {"adamw": torch.optim.AdamW, "adam": torch.optim.Adam, "sgd": torch.optim.SGD}


def make(config: dict[str, object]) -> Workload:
    torch.manual_seed(5)
    model = network()
    optimizer = recipe.optimizer(config, model.parameters(), NONE)
    schedule = recipe.schedule(config, optimizer, NONE)
    return Workload(model, optimizer, squared_error, Path(), schedule, recipe.scaler(config))


@pytest.mark.no_cover
@pytest.mark.parametrize("name", OPTIMIZERS)
@pytest.mark.parametrize("schedule", SCHEDULES, ids=lambda each: "-".join(map(str, each.values())))
def test_it_goes_on_bit_for_bit_from_any_step(name: str, schedule: dict[str, object]) -> None:
    config: dict[str, object] = {"optimizer": name, "scaler": True, "scaler_growth_interval": 2, **schedule}
    for saved in (1, 3, 4, 5, 9):  # in the warm-up, around its end, in the cosine
        torch.manual_seed(0)
        workload, progress = make(config), Progress()
        for _ in range(saved):
            step(workload, progress)
        tensors, texts = captured(workload, progress)
        expected = [(step(workload, progress), _rates(workload)) for _ in range(5)]
        fresh = make(config)
        back = restore(fresh, tensors, texts)
        assert [(step(fresh, back), _rates(fresh)) for _ in range(5)] == expected
        assert live_digests(fresh, back) == live_digests(workload, progress)


def _rates(workload: Workload) -> list[float]:
    return [group["lr"] for group in workload.optimizer.param_groups]


def _all_rates(config: dict[str, object], steps: int) -> list[float]:
    workload, rates = make(config), []
    for _ in range(steps):
        rates += _rates(workload)
        workload.optimizer.step()
        if workload.scheduler is not None:
            workload.scheduler.step()
    return rates


def test_the_rates() -> None:
    rates = _all_rates({"optimizer": "sgd", **COSINE}, 13)
    assert rates[:5] == pytest.approx([0.025, 0.05, 0.075, 0.1, 0.1])
    assert rates[4:] == pytest.approx([0.05 * (1 + math.cos(math.pi * k / 8)) for k in range(9)], abs=1e-12)
    assert _all_rates({"optimizer": "sgd", "schedule": "constant"}, 4) == [0.1] * 4
    assert _all_rates({"optimizer": "sgd", "schedule": "step", "step_size": 2, "gamma": 0.5}, 5) == [
        0.1, 0.1, 0.05, 0.05, 0.025,
    ]  # fmt: skip


def test_names_and_settings_reach_torch() -> None:
    for name, kind in OPTIMIZERS.items():
        made = make({"optimizer": name, "schedule": "constant", "weight_decay": 0.25, "momentum": 0.5}).optimizer
        assert type(made) is kind
        assert made.defaults["weight_decay"] == 0.25
        assert made.defaults.get("momentum", 0.5) == 0.5
    assert make({"optimizer": "sgd", "schedule": "constant"}).optimizer.defaults["momentum"] == 0.9
    scaler = make({"optimizer": "sgd", "schedule": "constant", "scaler": True, "scaler_scale": 32.0}).scaler
    assert scaler is not None
    assert scaler.get_scale() == 32.0
    assert make({"optimizer": "sgd", "schedule": "constant"}).scaler is None


@pytest.mark.parametrize(
    ("config", "words"),
    [({"optimizer": "adamax", "schedule": "step"}, "optimizer is 'adamax': it must be adamw, adam or sgd"),
     ({"optimizer": "sgd", "schedule": "linear"}, "schedule is 'linear': it must be constant, step or cosine")],
)  # fmt: skip
def test_another_name_is_refused(config: dict[str, object], words: str) -> None:
    with pytest.raises(ValueError, match=words):
        make(config)


@pytest.mark.parametrize(("name", "optimizer"), [*itertools.product(("bytelm", "tiny"), OPTIMIZERS)])
def test_the_built_in_workloads_take_them(
    name: str, optimizer: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    small = {"samples": 20, "width": 16, "layers": 1, "context": 8} if name == "bytelm" else {"rows": 20}
    workload = build(name, {**small, "optimizer": optimizer, "schedule": "cosine", "scaler": True})
    assert type(workload.optimizer) is OPTIMIZERS[optimizer]
    assert isinstance(workload.scheduler, torch.optim.lr_scheduler.SequentialLR if name == "bytelm" else object)
    assert workload.scaler is not None


@pytest.mark.parametrize("name", ["tiny", "bytelm", "linreg"])
def test_a_misspelt_key_is_refused_and_the_right_ones_are_listed(name: str) -> None:
    with pytest.raises(WorkloadError, match=r"config has no momentun; it may have .*\bmomentum\b") as caught:
        build(name, {"momentun": 0.5})
    assert "Traceback" not in str(caught.value)
