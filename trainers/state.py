"""The training state of one rank: collecting it, digesting it live, and putting a saved one back (invariant 4).

The parts and their names are those of `parts.py`. A missing part is an error, never a silent fresh start.
"""

from __future__ import annotations

import math
import random
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import torch

from storage.digests import bulk_digest
from trainers import jsonstate
from trainers.best import BestModel, description
from trainers.errors import StateError
from trainers.parts import LOCAL, REPLICATED, part_digests
from trainers.workload import Workload

_TAIL = 256


@dataclass
class Progress:
    """Where the run stands. `step` counts updates, skipped ones included; the cursor is step · global_batch.

    best_metric: the lowest finite training loss of a step so far, best_step: that step, counted like `step` after it.
    best_model: the model that had it, if the run keeps one; a part of its own, not of `progress`.
    """

    step: int = 0
    cursor: int = 0
    samples_seen: int = 0
    updates: int = 0
    skipped: int = 0
    best_metric: float | None = None
    best_step: int | None = None
    loss_count: int = 0
    loss_tail: list[float] = field(default_factory=list)
    best_model: BestModel | None = None

    def advance(self, loss: float, global_batch: int, *, skipped: bool) -> None:
        """Step counter, cursor, counts and loss history move together, in one place."""
        self.step += 1
        self.cursor += global_batch
        self.samples_seen += global_batch
        self.skipped += skipped
        self.updates += not skipped
        self.loss_count += 1
        self.loss_tail = [*self.loss_tail[1 - _TAIL:], loss]
        if self.is_best(loss):
            self.best_metric, self.best_step = loss, self.step

    def is_best(self, loss: float) -> bool:
        """Whether this loss is lower than every one before it, and finite."""
        return math.isfinite(loss) and (self.best_metric is None or loss < self.best_metric)

    def to_json(self) -> dict[str, Any]:
        best = None if self.best_metric is None else self.best_metric.hex()
        plain = {name: value for name, value in vars(self).items() if name != "best_model"}
        return {**plain, "best_metric": best, "loss_tail": [loss.hex() for loss in self.loss_tail]}

    @classmethod
    def from_json(cls, value: Mapping[str, Any]) -> Progress:
        best = value["best_metric"]
        fields = {**value, "best_metric": None if best is None else float.fromhex(best),
                  "loss_tail": [float.fromhex(loss) for loss in value["loss_tail"]]}
        return cls(**fields)


def raw(tensor: torch.Tensor) -> memoryview:
    """The tensor's bytes, in C order, on the host; no copy for a contiguous CPU tensor."""
    flat = tensor.detach().contiguous().cpu().reshape(-1)
    return flat.view(torch.uint8).numpy().data if flat.numel() else memoryview(b"")


def tensor_digest(tensor: torch.Tensor) -> str:
    return bulk_digest(raw(tensor))


def parameter_names(workload: Workload) -> dict[int, str]:
    """id(parameter) → name."""
    return {id(parameter): name for name, parameter in workload.model.named_parameters()}


def replicated_tensors(workload: Workload, best: BestModel | None = None) -> dict[str, torch.Tensor]:
    """`model/<parameter>`, `optimizer/<parameter>/<key>` and those of the best model: live tensors, not copies."""
    tensors = {f"model/{name}": parameter.data for name, parameter in workload.model.named_parameters()}
    names = parameter_names(workload)
    for parameter, state in workload.optimizer.state.items():
        for key, value in state.items():
            if isinstance(value, torch.Tensor):
                tensors[f"optimizer/{names[id(parameter)]}/{key}"] = value
    return tensors if best is None else tensors | best.shared_tensors()


def local_tensors(workload: Workload, best: BestModel | None = None) -> dict[str, torch.Tensor]:
    """`buffer/<name>` live, the torch generators' states, and the best model's buffers."""
    tensors = {f"buffer/{name}": buffer for name, buffer in workload.model.named_buffers()}
    tensors["rng/torch"] = torch.get_rng_state()
    if torch.cuda.is_available():
        tensors["rng/cuda"] = torch.cuda.get_rng_state()
    return tensors if best is None else tensors | best.local_tensors()


def json_parts(workload: Workload, progress: Progress) -> dict[str, str]:
    """JSON text of every part that has any; taken at once, so it is of one moment."""
    scheduler, scaler, best = workload.scheduler, workload.scaler, progress.best_model
    kind, keys, position, has_gauss, gauss = np.random.get_state(legacy=True)
    numpy_state = (str(kind), [int(key) for key in keys], int(position), int(has_gauss), float(gauss))
    return {
        "optimizer": jsonstate.encode(optimizer_rest(workload), "optimizer"),
        "scheduler": jsonstate.encode(scheduler.state_dict(), "scheduler") if scheduler else "null",
        "scaler": jsonstate.encode(scaler.state_dict(), "scaler") if scaler else "null",
        "progress": jsonstate.encode(progress.to_json(), "progress"),
        "rng.python": jsonstate.encode(random.getstate(), "rng.python"),
        "rng.numpy": jsonstate.encode(numpy_state, "rng.numpy"),
        **({} if best is None else {
            "best": jsonstate.encode(description(progress.best_metric, progress.best_step), "best")}),
    }


def optimizer_rest(workload: Workload) -> dict[str, Any]:
    """What the optimizer holds beside tensors: settings of each group, and numbers kept for each parameter."""
    names = parameter_names(workload)
    groups = [
        {**{key: value for key, value in group.items() if key != "params"},
         "params": [names[id(parameter)] for parameter in group["params"]]}
        for group in workload.optimizer.param_groups
    ]
    values = {
        names[id(parameter)]: {key: value for key, value in state.items() if not isinstance(value, torch.Tensor)}
        for parameter, state in workload.optimizer.state.items()
    }
    return {"groups": groups, "values": {name: value for name, value in values.items() if value}}


def live_digests(workload: Workload, progress: Progress) -> dict[str, str]:
    """Digests of all parts as they are in this process now."""
    best = progress.best_model
    tensors = {**replicated_tensors(workload, best), **local_tensors(workload, best)}
    digests = {name: tensor_digest(t) for name, t in tensors.items()}
    return part_digests((*REPLICATED, *LOCAL), digests, json_parts(workload, progress))


def seed_everything(seed: int, rank: int | None) -> None:
    """Seeds Python, NumPy and torch. Before the build `rank` is None: every rank builds the same model."""
    mixed = (seed * 1_000_003 + (0 if rank is None else rank + 1)) & 0xFFFFFFFF
    random.seed(mixed)
    np.random.seed(mixed)
    torch.manual_seed(mixed)


def restore(
    workload: Workload, tensors: Mapping[str, torch.Tensor], texts: Mapping[str, str], *, keep_best: bool = False
) -> Progress:
    """Puts the saved state into a freshly built workload, generators last. Raises StateError on any misfit."""
    _restore_model(workload, tensors)
    if workload.scheduler is not None:
        saved = _part(texts, "scheduler")
        workload.scheduler.load_state_dict(jsonstate.like(saved, workload.scheduler.state_dict()))
    elif texts.get("scheduler") != "null":
        raise StateError("the checkpoint holds a scheduler, the workload builds none")
    _restore_optimizer(workload, tensors, _part(texts, "optimizer"))
    if workload.scaler is not None:
        workload.scaler.load_state_dict(_part(texts, "scaler"))
    elif texts.get("scaler") != "null":
        raise StateError("the checkpoint holds a gradient scaler, the workload builds none")
    progress = Progress.from_json(_part(texts, "progress"))
    if keep_best:
        if _part(texts, "best") != description(progress.best_metric, progress.best_step):
            raise StateError("the checkpoint's best model does not belong to the best metric of its progress")
        progress.best_model = BestModel.restored(workload.model, tensors)
    elif "best" in texts:
        raise StateError("the checkpoint holds a best model, this run keeps none: set keep_best: true")
    _restore_generators(tensors, texts)
    return progress


def _part(texts: Mapping[str, str], name: str) -> Any:
    text = texts.get(name)
    if text is None or text == "null":
        raise StateError(f"the checkpoint lacks part {name!r}, which this workload needs: it would start afresh in "
                         "silence; restore from another checkpoint or start a new run")
    return jsonstate.decode(text, name)


def _copy(target: torch.Tensor, tensors: Mapping[str, torch.Tensor], name: str) -> None:
    source = tensors.get(name)
    if source is None:
        raise StateError(f"the checkpoint lacks the tensor {name!r}")
    if source.shape != target.shape or source.dtype != target.dtype:
        raise StateError(f"{name!r} is {source.dtype}{list(source.shape)} in the checkpoint and "
                         f"{target.dtype}{list(target.shape)} in the workload")
    target.copy_(source)


def _restore_model(workload: Workload, tensors: Mapping[str, torch.Tensor]) -> None:
    expected = {f"model/{name}": p.data for name, p in workload.model.named_parameters()}
    expected |= {f"buffer/{name}": buffer for name, buffer in workload.model.named_buffers()}
    restore_tensors(expected, tensors, ("model/", "buffer/"))


def restore_tensors(
    expected: Mapping[str, torch.Tensor], tensors: Mapping[str, torch.Tensor], prefix: str | tuple[str, ...]
) -> None:
    """Copies into `expected` what `tensors` has under the same names. Raises StateError unless both have the same."""
    extra = {name for name in tensors if name.startswith(prefix)} - set(expected)
    if extra:
        raise StateError(f"the checkpoint holds {sorted(extra)[0]!r}, which the workload's model lacks")
    with torch.no_grad():
        for name, target in expected.items():
            _copy(target, tensors, name)


def _restore_optimizer(workload: Workload, tensors: Mapping[str, torch.Tensor], rest: Mapping[str, Any]) -> None:
    optimizer, names = workload.optimizer, parameter_names(workload)
    order = [names[id(p)] for group in optimizer.param_groups for p in group["params"]]
    saved = [name for group in rest["groups"] for name in group["params"]]
    if order != saved:
        raise StateError("the optimizer's parameters differ from the checkpoint's, in number, name or order")
    state: dict[int, dict[str, Any]] = {}
    for index, name in enumerate(order):
        prefix = f"optimizer/{name}/"
        values = {key.removeprefix(prefix): t.clone() for key, t in tensors.items() if key.startswith(prefix)}
        values |= rest["values"].get(name, {})
        if values:
            state[index] = values
    groups, first = [], 0
    for group in rest["groups"]:
        count = len(group["params"])
        groups.append({**group, "params": list(range(first, first + count))})
        first += count
    try:
        optimizer.load_state_dict({"state": state, "param_groups": groups})
    except (KeyError, ValueError, TypeError) as error:
        raise StateError(f"the optimizer does not take the checkpoint's state back: {error!r}") from error


def _restore_generators(tensors: Mapping[str, torch.Tensor], texts: Mapping[str, str]) -> None:
    kind, keys, position, has_gauss, gauss = _part(texts, "rng.numpy")
    random.setstate(_part(texts, "rng.python"))
    np.random.set_state((kind, np.array(keys, dtype=np.uint32), position, has_gauss, gauss))
    if "rng/torch" not in tensors:
        raise StateError("the checkpoint lacks torch's generator state")
    torch.set_rng_state(tensors["rng/torch"].clone())
    if torch.cuda.is_available():
        if "rng/cuda" not in tensors:
            raise StateError("the checkpoint lacks the CUDA generator's state: it was written without a GPU")
        torch.cuda.set_rng_state(tensors["rng/cuda"].clone())
