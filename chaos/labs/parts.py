"""The parts of a lab's training state as JSON and back, and what a trace records of them.

Parts are named as in `trainers/parts.py`. A tensor is its type, its shape and its numbers in C order.
"""

from __future__ import annotations

import json
import math
from collections.abc import Mapping
from typing import Any

import torch
import xxhash

from chaos.errors import LabError
from storage.sealed import canonical

PARTS = ("model", "buffers", "optimizer", "scheduler", "progress", "rng.python", "rng.numpy", "rng.torch")
Names = Mapping[str, torch.Tensor]


def tensor_json(tensor: torch.Tensor) -> dict[str, Any]:
    return {
        "dtype": str(tensor.dtype).removeprefix("torch."),
        "shape": list(tensor.shape),
        "values": tensor.detach().reshape(-1).tolist(),
    }


def tensor_of(value: Mapping[str, Any]) -> torch.Tensor:
    """Raises ValueError, TypeError, KeyError or RuntimeError for what `tensor_json` did not write."""
    dtype = getattr(torch, value["dtype"], None)
    if not isinstance(dtype, torch.dtype):
        raise ValueError(f"unknown type {value['dtype']!r:.40}")
    return torch.tensor(value["values"], dtype=dtype).reshape(value["shape"])


def optimizer_json(optimizer: torch.optim.Optimizer, parameters: Names) -> dict[str, Any]:
    """`groups`: the settings, the rate among them. `history`: parameter → key → tensor."""
    names = {id(parameter): name for name, parameter in parameters.items()}
    groups = [
        {**{key: value for key, value in group.items() if key != "params"},
         "params": [names[id(parameter)] for parameter in group["params"]]}
        for group in optimizer.param_groups
    ]
    history = {
        name: {key: tensor_json(value) for key, value in optimizer.state[parameter].items()}
        for name, parameter in parameters.items()
        if optimizer.state.get(parameter)
    }
    return {"groups": plain(groups), "history": history}


def load_optimizer(optimizer: torch.optim.Optimizer, saved: Mapping[str, Any]) -> None:
    """Gives the optimizer what `optimizer_json` took from one of the same parameters. Errors as in `tensor_of`."""
    order = [name for group in saved["groups"] for name in group["params"]]
    numbers = {name: number for number, name in enumerate(order)}
    groups = [{**group, "params": [numbers[name] for name in group["params"]]} for group in saved["groups"]]
    state = {
        numbers[name]: {key: tensor_of(value) for key, value in history.items()}
        for name, history in saved["history"].items()
    }
    optimizer.load_state_dict({"state": state, "param_groups": groups})


def plain(value: Any) -> Any:
    """The value as JSON gives it back: tuples become lists. Raises TypeError for anything else than JSON."""
    return json.loads(json.dumps(value))


def backward(loss: torch.Tensor) -> None:
    """`loss.backward()`, which has no types."""
    torch.autograd.backward(loss)


def prints(parts: Mapping[str, object]) -> dict[str, str]:
    """Part → 64-bit digest of its canonical JSON; a part that the lab does not have counts as null.

    Raises LabError for a number that is not finite.
    """
    try:
        return {part: xxhash.xxh3_64_hexdigest(canonical(parts.get(part))) for part in PARTS}
    except ValueError:
        raise LabError("a number of the training state is no longer finite: the training was stopped") from None


def trace_values(parameters: Names, buffers: Names, optimizer: torch.optim.Optimizer) -> dict[str, tuple[str, ...]]:
    """Every tensor of the state in full: `model/w`, `buffer/mean`, `optimizer/w/momentum_buffer` → hex floats."""
    tensors = {f"model/{name}": tensor for name, tensor in parameters.items()}
    tensors |= {f"buffer/{name}": tensor for name, tensor in buffers.items()}
    for name, parameter in parameters.items():
        for key, value in optimizer.state.get(parameter, {}).items():
            tensors[f"optimizer/{name}/{key}"] = value
    return {name: tuple(float(v).hex() for v in tensor.detach().reshape(-1).tolist())
            for name, tensor in tensors.items()}


def gradient_norm(parameters: Names) -> float:
    return math.sqrt(sum(float((p.grad**2).sum()) for p in parameters.values() if p.grad is not None))
