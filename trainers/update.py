"""One update when numbers overflow: precision, gradient scaler, and the policy for what is not finite (invariant 5).

Every decision here is made from the reduced loss and gradient, which are the same on all ranks, so all ranks decide
alike. A skipped update is still a step: cursor, schedule and counters advance, parameters and optimizer do not.
"""

from __future__ import annotations

import math
import warnings
from contextlib import AbstractContextManager, nullcontext

import torch

from trainers.errors import PrecisionUnavailable
from trainers.events import What
from trainers.spec import Precision
from trainers.workload import Workload

STEP_IS = "updates done or skipped"  # the definition of a step, in every line of the training record
_DTYPES = {"bf16": torch.bfloat16, "fp16": torch.float16}


def require(precision: Precision, device: torch.device) -> None:
    """Raises PrecisionUnavailable for fp16 without CUDA."""
    if precision == "fp16" and device.type != "cuda":
        raise PrecisionUnavailable(f"precision fp16 needs CUDA, and this rank computes on {device.type}: use bf16, "
                                   "which has the range of fp32 and works on both, or run where there are GPUs")


def autocast(precision: Precision, device: torch.device) -> AbstractContextManager[object]:
    """Around a forward pass: torch chooses for each operation whether `precision` is safe. Parameters stay."""
    return nullcontext() if precision == "fp32" else torch.autocast(device.type, dtype=_DTYPES[precision])


def widened(losses: torch.Tensor) -> torch.Tensor:
    """The losses in at least single precision: their mean over the global batch must not be rounded to half."""
    return losses.float() if losses.dtype in _DTYPES.values() else losses


def scale_of(workload: Workload) -> float:
    """What the loss is multiplied by before the backward pass; 1 without a scaler."""
    return float(workload.scaler.get_scale()) if workload.scaler is not None else 1.0


def not_finite(loss: float, gradient_norm: float, scale: float) -> What | None:
    """What of an update is not finite, None if nothing is.

    A scaled gradient that overflows while the loss is finite is the scaler's to mend, as long as it scales up: at a
    scale of 1 or below scaling cannot be the cause.
    """
    if not math.isfinite(loss):
        return "loss"
    if math.isfinite(gradient_norm):
        return None
    return "scaled_gradient" if scale > 1.0 else "gradient"


def update(workload: Workload, *, withheld: bool = False) -> bool:
    """One optimizer update, unless it is withheld for what is not finite. True if it was skipped."""
    scaler, optimizer = workload.scaler, workload.optimizer
    if scaler is None:
        if not withheld:
            optimizer.step()
        return withheld
    before = scaler.get_scale()
    if withheld:
        scaler.unscale_(optimizer)  # here the scaler finds an overflow; `update` then lowers the scale
    else:
        scaler.step(optimizer)
    scaler.update()
    return withheld or bool(scaler.get_scale() < before)


def advance_schedule(workload: Workload, *, skipped: bool) -> None:
    """One step of the schedule, which is a function of the step and not of the updates: a skip does not delay it."""
    if workload.scheduler is None:
        return
    with warnings.catch_warnings() if skipped else nullcontext():
        if skipped:  # torch warns if the very first update is skipped: what it warns of is meant
            warnings.filterwarnings("ignore", message="Detected call of `lr_scheduler.step")
        workload.scheduler.step()
