"""The best model so far, kept apart from the last one: real copies that no later update can reach (invariant 4).

The metric is the training loss of one update's global batch. The copy is taken before that update is applied: its
parameters are those that the loss was computed with, its buffers those that the forward passes left. A skipped
update's loss counts, since it was measured; one that is not finite does not.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import torch

from trainers.errors import StateError


@dataclass(frozen=True)
class BestModel:
    """Copies of a model's parameters and buffers, by name; before the first finite loss those it was built with."""

    parameters: Mapping[str, torch.Tensor]
    buffers: Mapping[str, torch.Tensor]

    @classmethod
    def of(cls, model: torch.nn.Module) -> BestModel:
        """Copies of the model as it is."""
        return cls({name: p.detach().clone() for name, p in model.named_parameters()},
                   {name: b.detach().clone() for name, b in model.named_buffers()})

    def take(self, model: torch.nn.Module) -> None:
        """Overwrites the copies with the model as it is now."""
        with torch.no_grad():
            for name, parameter in model.named_parameters():
                self.parameters[name].copy_(parameter)
            for name, buffer in model.named_buffers():
                self.buffers[name].copy_(buffer)

    def shared_tensors(self) -> dict[str, torch.Tensor]:
        """`best/<parameter>`."""
        return {f"best/{name}": tensor for name, tensor in self.parameters.items()}

    def local_tensors(self) -> dict[str, torch.Tensor]:
        """`best_buffer/<buffer>`."""
        return {f"best_buffer/{name}": tensor for name, tensor in self.buffers.items()}

    @classmethod
    def restored(cls, model: torch.nn.Module, tensors: Mapping[str, torch.Tensor]) -> BestModel:
        """The saved one, in memory of its own. Raises StateError unless it is one of this model."""
        best = cls.of(model)
        for name, target in {**best.shared_tensors(), **best.local_tensors()}.items():
            source = tensors.get(name)
            if source is None or source.shape != target.shape or source.dtype != target.dtype:
                raise StateError(f"the checkpoint's {name!r} is missing or not of this model: it cannot be its best")
            target.copy_(source)
        return best


def description(metric: float | None, step: int | None) -> dict[str, Any]:
    """The part's text: the metric that the copy belongs to, and the step that it was measured in."""
    return {"metric": None if metric is None else metric.hex(), "step": step}
