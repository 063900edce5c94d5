"""Fingerprints of one step: what the run computed, small enough to record after every update (invariant 5).

One 64-bit digest (XXH3-64, 16 hex digits) a part of the state, the parts named as in `parts.py`, read off the live
tensors without copying them. Two runs that did the same have the same fingerprints at every step; where they part,
the part that differs first says what was lost. They are not the digests of a checkpoint's manifest, which are wider
and made tensor by tensor: those protect what is stored, these compare what was computed.

What all ranks hold alike they share out, as they do when they save: each rank digests the parameters that it owns, and
their moments. Its own buffers and generators it digests itself.
"""

from __future__ import annotations

import json
import random
from array import array
from collections.abc import Callable, Iterable, Sequence
from functools import cache, lru_cache

import numpy as np
import torch
import xxhash

from trainers import jsonstate
from trainers.staging import owner_of
from trainers.state import Progress
from trainers.workload import Workload

_JSON = json.JSONEncoder(sort_keys=True)


class Views:
    """The bytes of tensors that stay where they are from step to step: found once, since finding them costs as much
    as digesting them. A tensor that is another one, or has other memory, is looked at anew; what is gone is let go.
    """

    def __init__(self) -> None:
        self._known: dict[int, tuple[torch.Tensor, int, int, memoryview]] = {}
        self._seen: dict[int, tuple[torch.Tensor, int, int, memoryview]] = {}
        self._states: dict[str, tuple[object, str]] = {}

    def of(self, tensor: torch.Tensor) -> memoryview:
        """The tensor's bytes as they are now, in the order of its elements."""
        number = id(tensor)
        known = self._known.get(number)
        if known is None or known[0] is not tensor or known[1] != tensor.data_ptr() or known[2] != tensor.nbytes:
            plain = tensor.detach()
            if not (plain.is_cpu and plain.is_contiguous()):
                return _bytes(plain.contiguous().cpu())
            known = (tensor, tensor.data_ptr(), tensor.nbytes, _bytes(plain))
        self._seen[number] = known
        return known[3]

    def digest_of(self, name: str, state: object, as_bytes: Callable[[], bytes]) -> str:
        """A digest of a generator's state, made again only if it is another than the last time."""
        if self._states.get(name, (None,))[0] != state:
            self._states[name] = state, xxhash.xxh3_64_hexdigest(as_bytes())
        return self._states[name][1]

    def turn(self) -> None:
        """A step is over: forgets what was not asked for."""
        self._known, self._seen = self._seen, {}


def step_fingerprint(
    workload: Workload, progress: Progress, views: Views | None = None, rank: int = 0, ranks: int = 1
) -> dict[str, str]:
    """Part → digest, of the rank's share of the state as it is now. Changes nothing and draws nothing.

    views: kept from step to step.
    """
    views = Views() if views is None else views
    parameters, buffers = _members(workload.model)
    owners = _owners(tuple(parameter.nbytes for parameter in parameters), ranks)
    own = [number for number, owner in enumerate(owners) if owner == rank]
    prints = _state(workload, progress, views, [parameters[number] for number in own])
    prints["buffers"] = _tensors(views, buffers)
    if progress.best_model is not None:  # tensors only: equal to that of the model that was best
        best = list(progress.best_model.parameters.values())
        prints["best"] = _tensors(views, [best[number] for number in own])
        prints["best.buffers"] = _tensors(views, progress.best_model.buffers.values())
    views.turn()
    return prints


def _members(model: torch.nn.Module) -> tuple[list[torch.nn.Parameter], list[torch.Tensor]]:
    """`parameters()` and `buffers()`, in one walk, and in their order."""
    parameters: dict[int, torch.nn.Parameter] = {}
    buffers: dict[int, torch.Tensor] = {}
    seen: set[torch.nn.Module | None] = {None}
    ahead: list[torch.nn.Module | None] = [model]
    while ahead:
        module = ahead.pop()
        if module in seen:
            continue
        seen.add(module)
        assert module is not None
        for parameter in module._parameters.values():
            if parameter is not None:
                parameters.setdefault(id(parameter), parameter)
        for buffer in module._buffers.values():
            if buffer is not None:
                buffers.setdefault(id(buffer), buffer)
        ahead.extend(reversed(module._modules.values()))
    return list(parameters.values()), list(buffers.values())


@lru_cache(maxsize=8)
def _owners(sizes: tuple[int, ...], ranks: int) -> tuple[int, ...]:
    owner = owner_of({f"{number:09}": size for number, size in enumerate(sizes)}, ranks)
    return tuple(owner[name] for name in sorted(owner))


def _state(
    workload: Workload, progress: Progress, views: Views, parameters: Sequence[torch.nn.Parameter]
) -> dict[str, str]:
    """parameters: those that the rank digests, with their moments."""
    optimizer, scheduler, scaler = workload.optimizer, workload.scheduler, workload.scaler
    prints = {
        "model": _tensors(views, parameters),
        "optimizer": _optimizer(views, optimizer, parameters),
        "scheduler": _text(scheduler.state_dict() if scheduler else None, "scheduler"),
        "scaler": _text(scaler.state_dict() if scaler else None, "scaler"),
        "progress": _progress(progress),
        "rng.python": _python_generator(views),
        "rng.numpy": _numpy_generator(views),
        "rng.torch": xxhash.xxh3_64_hexdigest(torch.default_generator.get_state().numpy().data),
    }
    if _has_cuda():
        prints["rng.cuda"] = _tensors(views, [torch.cuda.get_rng_state()])
    return prints


def _optimizer(views: Views, optimizer: torch.optim.Optimizer, parameters: Sequence[torch.nn.Parameter]) -> str:
    """In the parameters' and the names' order: a restore makes the same state in another order."""
    moments: list[torch.Tensor] = []
    rest: list[object] = [{k: v for k, v in group.items() if k != "params"} for group in optimizer.param_groups]
    for number, parameter in enumerate(parameters):
        held = optimizer.state.get(parameter, {})
        for key in _in_order(tuple(held)):
            value = held[key]
            if isinstance(value, torch.Tensor):
                moments.append(value)
            else:
                rest.append((number, key, value))
    return _tensors(views, moments, rest)


@lru_cache(maxsize=64)
def _in_order(names: tuple[str, ...]) -> tuple[str, ...]:
    return tuple(sorted(names))


@cache
def _has_cuda() -> bool:
    return torch.cuda.is_available()


def _bytes(plain: torch.Tensor) -> memoryview:
    return (plain.view(torch.int16) if plain.dtype == torch.bfloat16 else plain).numpy().data


def _tensors(views: Views, tensors: Iterable[torch.Tensor], rest: object = None) -> str:
    state = xxhash.xxh3_64()
    for view in map(views.of, tensors):
        state.update(view)
    if rest is not None:
        state.update(_encoded(rest, "optimizer"))
    return state.hexdigest()


def _text(value: object, where: str) -> str:
    return xxhash.xxh3_64_hexdigest(_encoded(value, where))


def _encoded(value: object, where: str) -> bytes:
    """Plain JSON where it will do, since it is ten times faster: it gives every finite number back as it was."""
    try:
        return _JSON.encode(value).encode()
    except (TypeError, ValueError):
        return jsonstate.encode(value, where).encode()


def _progress(progress: Progress) -> str:
    plain = {name: value for name, value in vars(progress).items() if name not in ("best_model", "loss_tail")}
    state = xxhash.xxh3_64(array("d", progress.loss_tail).tobytes())
    state.update(_encoded(plain, "progress"))
    return state.hexdigest()


def _python_generator(views: Views) -> str:
    state = random.getstate()
    version, words, gauss = state
    return views.digest_of(
        "python", state, lambda: np.array(words, dtype="<u4").tobytes() + repr((version, gauss)).encode()
    )


def _numpy_generator(views: Views) -> str:
    kind, key, position, has_gauss, gauss = np.random.get_state(legacy=True)
    words = np.asarray(key, dtype="<u4").tobytes()
    rest = (str(kind), int(position), int(has_gauss), float(gauss))
    return views.digest_of("numpy", (words, rest), lambda: words + repr(rest).encode())
