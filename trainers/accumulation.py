"""An unfinished step: what a checkpoint holds besides when it is taken between two microbatches (invariant 4).

Gradients are summed over ranks only when a step's last microbatch is done. Before that each rank has sums of its own,
and with them belong how many microbatches they are of, the sum of the losses, what each loss was divided by, the
scale that they carry, and the samples. All are taken with the generators at one moment and come back together.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np
import numpy.typing as npt
import torch

from trainers import jsonstate
from trainers.errors import StateError
from trainers.parts import PARTIAL, part_digests
from trainers.state import restore_tensors, tensor_digest
from trainers.workload import Workload

if TYPE_CHECKING:
    from trainers.source import Share

_PREFIX, _IDS = "gradient/", "accumulation/sample_ids"


@dataclass(frozen=True)
class SaveSchedule:
    """When a checkpoint falls due, counted in microbatches of the whole run. every_microbatches: None for never."""

    steps: int
    microbatches: int
    every_steps: int
    every_microbatches: int | None = None

    def due(self, step: int, microbatch: int = 0) -> bool:
        """After `step` updates and `microbatch` (less than a step has) of the next one's microbatches."""
        done, more = step * self.microbatches + microbatch, self.every_microbatches
        at_boundary = not microbatch and (step % self.every_steps == 0 or step == self.steps)
        return at_boundary or (more is not None and done % more == 0)


@dataclass(frozen=True, eq=False)
class Partial:
    """One rank's step after `microbatch` of its `microbatches`, but for the gradients: those are the parameters' own.

    step: updates done before it. loss_sum: of the losses of its samples so far. denominator: what each loss is divided
    by before it is propagated. scale: the gradient scaler's, which the gradients carry; None without one.
    sample_ids: int64[n], as consumed.
    """

    step: int
    microbatch: int
    microbatches: int
    loss_sum: float
    denominator: int
    scale: float | None
    sample_ids: npt.NDArray[np.int64]

    @classmethod
    def now(
        cls, workload: Workload, share: Share, step: int, microbatch: int, loss_sum: float,
        sample_ids: Sequence[npt.NDArray[np.int64]],
    ) -> Partial:
        """As it stands after `microbatch` backward passes of the update that follows `step` updates."""
        return cls(step, microbatch, share.microbatches, loss_sum, share.global_batch, _scale_of(workload),
                   np.concatenate(sample_ids))

    def tensors(self, workload: Workload) -> dict[str, torch.Tensor]:
        """`gradient/<parameter>`, live, not copied, and `accumulation/sample_ids`."""
        ids = torch.from_numpy(np.ascontiguousarray(self.sample_ids, dtype="<i8"))
        return {**gradient_tensors(workload), _IDS: ids}

    def texts(self) -> dict[str, str]:
        """JSON text of the part `accumulation`."""
        value = {
            "step": self.step, "microbatch": self.microbatch, "microbatches": self.microbatches,
            "samples": len(self.sample_ids), "loss_sum": self.loss_sum, "denominator": self.denominator,
            "scale": self.scale,
        }  # fmt: skip
        return {"accumulation": jsonstate.encode(value, "accumulation")}

    def digests(self, workload: Workload) -> dict[str, str]:
        """Digests of the parts `gradients` and `accumulation` as they are now."""
        tensors = {name: tensor_digest(tensor) for name, tensor in self.tensors(workload).items()}
        return part_digests(PARTIAL, tensors, self.texts())


def gradient_tensors(workload: Workload) -> dict[str, torch.Tensor]:
    """`gradient/<parameter>`: this rank's sums as they lie there, of every parameter that is trained."""
    named = workload.model.named_parameters()
    return {f"{_PREFIX}{name}": p.grad for name, p in named if p.requires_grad and p.grad is not None}


def partial_bytes(workload: Workload, rows: int) -> int:
    """How much more a save inside a step copies than one at its end, at most. rows: of a rank's step."""
    return sum(gradient.nbytes for gradient in gradient_tensors(workload).values()) + 8 * rows


def _scale_of(workload: Workload) -> float | None:
    """What the gradient scaler multiplies losses by now, None without one."""
    scaler = workload.scaler
    return float(scaler.get_scale()) if scaler is not None and scaler.is_enabled() else None


def restore_partial(
    workload: Workload, tensors: Mapping[str, torch.Tensor], texts: Mapping[str, str], step: int, microbatch: int
) -> Partial | None:
    """Puts the partial gradients of a checkpoint into the parameters' own; None if it is of a step's boundary.

    step, microbatch: the checkpoint's. The scaler has to be restored first. Raises StateError on any misfit.
    """
    if microbatch == 0 and "accumulation" not in texts:
        return None
    value, ids = jsonstate.decode(texts.get("accumulation", "{}"), "accumulation"), tensors.get(_IDS)
    if (value.get("step"), value.get("microbatch")) != (step, microbatch):
        raise StateError(f"the checkpoint is of microbatch {microbatch} of step {step}, its partial gradients are of "
                         f"microbatch {value.get('microbatch')} of step {value.get('step')}")
    restore_tensors(gradient_tensors(workload), tensors, _PREFIX)
    if ids is None or len(ids) != value["samples"]:
        raise StateError(f"the checkpoint counts {value['samples']} samples in its partial gradients and does not name "
                         "them all")
    if value["scale"] != (now := _scale_of(workload)):
        raise StateError(f"the checkpoint's partial gradients carry the scale {value['scale']}, its gradient scaler "
                         f"has {now}")
    return Partial(step, microbatch, value["microbatches"], value["loss_sum"], value["denominator"], value["scale"],
                   ids.numpy().copy())
