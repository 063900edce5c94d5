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
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import cache, lru_cache
from typing import TypeVar

import numpy as np
import torch
import xxhash

from trainers import jsonstate
from trainers.staging import owner_of
from trainers.state import Progress
from trainers.workload import Workload

_JSON = json.JSONEncoder(sort_keys=True)
_TENSORS = frozenset({torch.Tensor})
_T = TypeVar("_T")
_Named = Sequence[Mapping[str, _T | None]]
_ADDRESS = torch.Tensor.data_ptr
_SIZE_BYTES = torch.Tensor.nbytes.__get__  # type: ignore[attr-defined]


@dataclass(frozen=True)
class _Seen:
    """The tensors of one part at one step, each with where its bytes lie; no view of what has to be copied first."""

    tensors: list[torch.Tensor]
    places: tuple[list[int], list[int], list[int]]
    views: list[memoryview | None]
    all_in_place: bool


@dataclass(frozen=True)
class _Walk:
    """All modules below one, in the order of a walk."""

    of: torch.nn.Module
    modules: list[torch.nn.Module]  # kept, so that no other one gets the identity of one of them
    children: tuple[list[int], list[int]]


class Views:
    """The bytes of tensors that stay where they are from step to step: found once, since finding them costs as much
    as digesting them. A tensor that is another one, or has other memory, is looked at anew; what is gone is let go.
    """

    def __init__(self) -> None:
        self._seen: dict[str, _Seen] = {}
        self._states: dict[str, tuple[object, str]] = {}
        self._walk: _Walk | None = None

    def members(self, model: torch.nn.Module) -> tuple[list[torch.Tensor], list[torch.Tensor]]:
        """`parameters()` and `buffers()`, in their order; which modules there are is walked anew if one is another."""
        if self._walk is None or self._walk.of is not model or self._walk.children != _children(self._walk.modules):
            self._walk = _walked(model)
        modules = self._walk.modules
        return _distinct([m._parameters for m in modules]), _distinct([m._buffers for m in modules])

    def of(self, part: str, tensors: list[torch.Tensor]) -> list[memoryview]:
        """Each tensor's bytes as they are now, in the order of its elements. part: names the list from step to step.

        One look at a whole list, by functions that are not Python's: after a step none of this lies in a near cache,
        and every object that is touched costs more than what is done with it.
        """
        places = list(map(id, tensors)), list(map(_ADDRESS, tensors)), list(map(_SIZE_BYTES, tensors))
        seen = self._seen.get(part)
        if seen is None or seen.places != places:
            known = dict(zip(zip(*seen.places, strict=True), seen.views, strict=True)) if seen is not None else {}
            found = [_in_place(tensor) if (view := known.get(place)) is None else view
                     for tensor, place in zip(tensors, zip(*places, strict=True), strict=True)]
            seen = self._seen[part] = _Seen(tensors, places, found, None not in found)
        if seen.all_in_place:
            return seen.views  # type: ignore[return-value]
        return [_bytes(tensor.detach().contiguous().cpu()) if view is None else view
                for tensor, view in zip(tensors, seen.views, strict=True)]

    def digest_of(self, name: str, state: object, as_bytes: Callable[[], bytes]) -> str:
        """A digest of a generator's state, made again only if it is another than the last time."""
        if self._states.get(name, (None,))[0] != state:
            self._states[name] = state, xxhash.xxh3_64_hexdigest(as_bytes())
        return self._states[name][1]


def step_fingerprint(
    workload: Workload, progress: Progress, views: Views | None = None, rank: int = 0, ranks: int = 1
) -> dict[str, str]:
    """Part → digest, of the rank's share of the state as it is now. Changes nothing and draws nothing.

    views: kept from step to step.
    """
    views = Views() if views is None else views
    parameters, buffers = views.members(workload.model)
    owners = _owners(tuple(parameter.nbytes for parameter in parameters), ranks)
    own = [number for number, owner in enumerate(owners) if owner == rank]
    prints = _state(workload, progress, views, [parameters[number] for number in own])
    prints["buffers"] = _tensors(views, "buffers", buffers)
    if progress.best_model is not None:  # tensors only: equal to that of the model that was best
        best = list(progress.best_model.parameters.values())
        prints["best"] = _tensors(views, "best", [best[number] for number in own])
        prints["best.buffers"] = _tensors(views, "best.buffers", list(progress.best_model.buffers.values()))
    return prints


def _walked(model: torch.nn.Module) -> _Walk:
    modules = list(model.modules())
    return _Walk(model, modules, _children(modules))


def _children(modules: list[torch.nn.Module]) -> tuple[list[int], list[int]]:
    """Of each module how many, and of all together which."""
    inside = [module._modules for module in modules]
    return list(map(len, inside)), [id(child) for named in inside if named for child in named.values()]


def _distinct(tensors: _Named[_T]) -> list[_T]:
    return list({id(t): t for named in tensors if named for t in named.values() if t is not None}.values())


@lru_cache(maxsize=8)
def _owners(sizes: tuple[int, ...], ranks: int) -> tuple[int, ...]:
    owner = owner_of({f"{number:09}": size for number, size in enumerate(sizes)}, ranks)
    return tuple(owner[name] for name in sorted(owner))


def _state(
    workload: Workload, progress: Progress, views: Views, parameters: list[torch.Tensor]
) -> dict[str, str]:
    """parameters: those that the rank digests, with their moments."""
    optimizer, scheduler, scaler = workload.optimizer, workload.scheduler, workload.scaler
    prints = {
        "model": _tensors(views, "model", parameters),
        "optimizer": _optimizer(views, optimizer, parameters),
        "scheduler": _text(scheduler.state_dict() if scheduler else None, "scheduler"),
        "scaler": _text(scaler.state_dict() if scaler else None, "scaler"),
        "progress": _progress(progress),
        "rng.python": _python_generator(views),
        "rng.numpy": _numpy_generator(views),
        "rng.torch": xxhash.xxh3_64_hexdigest(torch.default_generator.get_state().numpy().data),
    }
    if _has_cuda():
        prints["rng.cuda"] = _tensors(views, "rng.cuda", [torch.cuda.get_rng_state()])
    return prints


def _optimizer(views: Views, optimizer: torch.optim.Optimizer, parameters: Sequence[torch.Tensor]) -> str:
    """In the parameters' and the names' order: a restore makes the same state in another order."""
    moments: list[torch.Tensor] = []
    rest: list[object] = [{k: v for k, v in group.items() if k != "params"} for group in optimizer.param_groups]
    for number, parameter in enumerate(parameters):
        held = optimizer.state.get(parameter, {})
        names = _in_order(tuple(held))
        values = list(map(held.__getitem__, names))
        if _TENSORS.issuperset(map(type, values)):
            moments += values
            continue
        for name, value in zip(names, values, strict=True):
            if isinstance(value, torch.Tensor):
                moments.append(value)
            else:
                rest.append((number, name, value))
    return _tensors(views, "optimizer", moments, rest)


@lru_cache(maxsize=64)
def _in_order(names: tuple[str, ...]) -> tuple[str, ...]:
    return tuple(sorted(names))


@cache
def _has_cuda() -> bool:
    return torch.cuda.is_available()


def _bytes(plain: torch.Tensor) -> memoryview:
    return (plain.view(torch.int16) if plain.dtype == torch.bfloat16 else plain).numpy().data


def _in_place(tensor: torch.Tensor) -> memoryview | None:
    """The bytes where they lie, if they lie in the order of the elements and in this machine's memory."""
    plain = tensor.detach()
    return _bytes(plain) if plain.is_cpu and plain.is_contiguous() else None


def _tensors(views: Views, part: str, tensors: list[torch.Tensor], rest: object = None) -> str:
    state = xxhash.xxh3_64()
    for view in views.of(part, tensors):
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
