"""One update under mixed precision: what is not finite, whose affair it is, and that a skip changes nothing else."""

from __future__ import annotations

import math
import warnings
from pathlib import Path

import pytest
import torch
from state_kit import captured, network, squared_error, step

from trainers.errors import PrecisionUnavailable
from trainers.state import Progress, live_digests, restore
from trainers.update import advance_schedule, autocast, not_finite, require, scale_of, update, widened
from trainers.workload import Workload

CPU = torch.device("cpu")


def make(scale: float | None = 8.0, growth_interval: int = 3) -> Workload:
    torch.manual_seed(5)
    model = network()
    optimizer = torch.optim.Adam(model.parameters(), 0.05)
    schedule = torch.optim.lr_scheduler.StepLR(optimizer, 3, gamma=0.5)
    scaler = None if scale is None else torch.amp.GradScaler("cpu", scale, growth_interval=growth_interval)
    return Workload(model, optimizer, squared_error, Path("nowhere"), schedule, scaler)


def backward(workload: Workload, factor: float = 1.0) -> None:
    """Scaled gradients of one batch; a factor of infinity makes them overflow."""
    workload.optimizer.zero_grad()
    loss = workload.loss(workload.model, {"x": torch.ones(4, 3)}).mean() * factor
    (loss if workload.scaler is None else workload.scaler.scale(loss)).backward()  # type: ignore[no-untyped-call]


@pytest.mark.parametrize(
    ("loss", "norm", "scale", "found"),
    [
        (1.0, 2.0, 1.0, None), (1.0, 2.0, 65536.0, None),
        (math.nan, 2.0, 65536.0, "loss"), (math.inf, math.nan, 1.0, "loss"), (-math.inf, 2.0, 1.0, "loss"),
        (1.0, math.inf, 65536.0, "scaled_gradient"), (1.0, math.nan, 2.0, "scaled_gradient"),
        (1.0, math.inf, 1.0, "gradient"), (1.0, math.nan, 0.5, "gradient"),
    ],
)  # fmt: skip
def test_what_is_not_finite(loss: float, norm: float, scale: float, found: str | None) -> None:
    assert not_finite(loss, norm, scale) == found


def test_the_scale_is_one_without_a_scaler() -> None:
    assert scale_of(make(None)) == 1.0
    assert scale_of(make(8.0)) == 8.0
    off = Workload(network(), make().optimizer, squared_error, Path(), None, torch.amp.GradScaler("cpu", enabled=False))
    assert scale_of(off) == 1.0


@pytest.mark.parametrize("scale", [None, 8.0])
def test_a_withheld_update_leaves_model_and_optimizer_as_they_were(scale: float | None) -> None:
    workload = make(scale)
    for _ in range(2):
        backward(workload)
        assert not update(workload)
    before = live_digests(workload, Progress())
    backward(workload, math.inf)
    assert update(workload, withheld=True)
    after = live_digests(workload, Progress())
    changed = {part for part in before if before[part] != after[part]} - {"buffers", "rng.torch"}  # of the forward pass
    assert changed == (set() if scale is None else {"scaler"})


def test_a_withheld_update_is_to_the_scaler_what_its_own_skip_is() -> None:
    ours, torchs = make(), make()
    for workload in (ours, torchs):
        torch.manual_seed(1)
        backward(workload)
        update(workload)
        backward(workload, math.inf)
    assert update(ours, withheld=True)
    assert torchs.scaler is not None
    torchs.scaler.step(torchs.optimizer)
    torchs.scaler.update()
    assert live_digests(ours, Progress()) == live_digests(torchs, Progress())
    assert ours.scaler is not None
    assert ours.scaler.state_dict()["scale"] == 4.0
    assert ours.scaler.state_dict()["_growth_tracker"] == 0


def test_a_loss_that_is_withheld_alone_does_not_lower_the_scale() -> None:
    workload = make()
    backward(workload)
    assert update(workload, withheld=True)
    assert scale_of(workload) == 8.0


def test_scale_and_growth_tracker_come_back() -> None:
    """Two good steps, an overflow, one good step: scale 4, tracker 1; then the scale doubles after two more."""
    torch.manual_seed(0)
    workload, progress = make(), Progress()
    for factor in (1.0, 1.0, math.inf, 1.0):
        backward(workload, factor)
        skipped = update(workload, withheld=factor == math.inf)
        advance_schedule(workload, skipped=skipped)
        progress.advance(1.0, 4, skipped=skipped)
    tensors, texts = captured(workload, progress)
    fresh = make()
    back = restore(fresh, tensors, texts)
    assert (scale_of(fresh), back.skipped, back.updates, back.step) == (4.0, 1, 3, 4)
    scales = []
    for each, at in ((workload, progress), (fresh, back)):
        torch.set_rng_state(tensors["rng/torch"])
        losses = [step(each, at) for _ in range(6)]
        scales.append((losses, scale_of(each), live_digests(each, at)))
    assert scales[0] == scales[1]
    assert scales[0][1] == 16.0  # after 2 and after 5 of the 6


def test_the_schedule_advances_with_a_skip_and_torch_does_not_complain() -> None:
    workload = make()
    backward(workload, math.inf)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        advance_schedule(workload, skipped=update(workload, withheld=True))
    assert workload.scheduler is not None
    assert workload.scheduler.last_epoch == 1
    advance_schedule(Workload(workload.model, workload.optimizer, squared_error, Path()), skipped=False)


def test_torch_still_complains_of_a_schedule_that_runs_ahead_unasked() -> None:
    with pytest.warns(UserWarning, match="before `optimizer.step"):
        advance_schedule(make(), skipped=False)


def test_autocast_computes_in_the_precision_and_keeps_parameters() -> None:
    model = torch.nn.Linear(3, 2)
    with autocast("bf16", CPU):
        assert model(torch.ones(1, 3)).dtype == torch.bfloat16
    with autocast("fp32", CPU):
        assert model(torch.ones(1, 3)).dtype == torch.float32
    assert model.weight.dtype == torch.float32


def test_half_precision_needs_cuda() -> None:
    for precision in ("fp32", "bf16"):
        require(precision, CPU)  # type: ignore[arg-type]
    require("fp16", torch.device("cuda"))
    with pytest.raises(PrecisionUnavailable, match=r"fp16 needs CUDA.* computes on cpu: use bf16"):
        require("fp16", CPU)


def test_losses_are_summed_in_single_precision_at_least() -> None:
    many = torch.ones(4097, dtype=torch.bfloat16)
    assert float(widened(many).sum()) == 4097.0
    assert float(many.sum()) != 4097.0
    assert widened(torch.ones(1, dtype=torch.float64)).dtype == torch.float64
