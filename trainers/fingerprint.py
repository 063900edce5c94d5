"""Fingerprints of one step: what the run computed, small enough to record after every update (invariant 5).

One 64-bit digest (XXH3-64, 16 hex digits) a part of the state, the parts named as in `parts.py`, read off the live
tensors without copying them. Two runs that did the same have the same fingerprints at every step; where they part,
the part that differs first says what was lost. They are not the digests of a checkpoint's manifest, which are wider
and made tensor by tensor: those protect what is stored, these compare what was computed.
"""

from __future__ import annotations

import random
from collections.abc import Iterable, Sequence
from functools import cache

import numpy as np
import torch
import xxhash

from trainers import jsonstate
from trainers.state import Progress
from trainers.workload import Workload


class Views:
    """The bytes of tensors that stay where they are from step to step: found once, since finding them costs as much
    as digesting them. A tensor that is another one, or has other memory, is looked at anew; what is gone is let go.
    """

    def __init__(self) -> None:
        self._known: dict[int, tuple[torch.Tensor, int, int, memoryview]] = {}
        self._seen: dict[int, tuple[torch.Tensor, int, int, memoryview]] = {}

    def of(self, tensor: torch.Tensor) -> memoryview:
        """The tensor's bytes as they are now, in the order of its elements."""
        known = self._known.get(id(tensor))
        if known is None or known[0] is not tensor or known[1:3] != (tensor.data_ptr(), tensor.nbytes):
            plain = tensor.detach()
            if not (plain.is_cpu and plain.is_contiguous()):
                return _bytes(plain.contiguous().cpu())
            known = (tensor, tensor.data_ptr(), tensor.nbytes, _bytes(plain))
        self._seen[id(tensor)] = known
        return known[3]

    def turn(self) -> None:
        """A step is over: forgets what was not asked for."""
        self._known, self._seen = self._seen, {}


def step_fingerprint(workload: Workload, progress: Progress, views: Views | None = None) -> dict[str, str]:
    """Part → digest, of the state as it is now. Changes nothing and draws nothing. views: kept from step to step."""
    views = Views() if views is None else views
    prints = _state(workload, progress, views)
    views.turn()
    return prints


def _state(workload: Workload, progress: Progress, views: Views) -> dict[str, str]:
    optimizer, scheduler, scaler = workload.optimizer, workload.scheduler, workload.scaler
    parameters = list(workload.model.parameters())
    prints = {
        "model": _tensors(views, parameters),
        "optimizer": _optimizer(views, optimizer, parameters),
        "buffers": _tensors(views, workload.model.buffers()),
        "scheduler": _text(scheduler.state_dict() if scheduler else None, "scheduler"),
        "scaler": _text(scaler.state_dict() if scaler else None, "scaler"),
        "progress": _text(progress.to_json(), "progress"),
        "rng.python": _python_generator(),
        "rng.numpy": _numpy_generator(),
        "rng.torch": _tensors(views, [torch.get_rng_state()]),
    }
    if _has_cuda():
        prints["rng.cuda"] = _tensors(views, [torch.cuda.get_rng_state()])
    if progress.best_model is not None:  # tensors only: equal to that of the model that was best
        prints["best"] = _tensors(views, progress.best_model.parameters.values())
        prints["best.buffers"] = _tensors(views, progress.best_model.buffers.values())
    return prints


def _optimizer(views: Views, optimizer: torch.optim.Optimizer, parameters: Sequence[torch.nn.Parameter]) -> str:
    """In the parameters' and the names' order: a restore makes the same state in another order."""
    moments: list[torch.Tensor] = []
    rest: list[object] = [{k: v for k, v in group.items() if k != "params"} for group in optimizer.param_groups]
    for number, parameter in enumerate(parameters):
        for key, value in sorted(optimizer.state.get(parameter, {}).items()):
            if isinstance(value, torch.Tensor):
                moments.append(value)
            else:
                rest.append((number, key, value))
    return _tensors(views, moments, rest)


@cache
def _has_cuda() -> bool:
    return torch.cuda.is_available()


def _bytes(plain: torch.Tensor) -> memoryview:
    return (plain.view(torch.int16) if plain.dtype == torch.bfloat16 else plain).numpy().data


def _tensors(views: Views, tensors: Iterable[torch.Tensor], rest: object = None) -> str:
    state = xxhash.xxh3_64()
    for tensor in tensors:
        state.update(views.of(tensor))
    if rest is not None:
        state.update(jsonstate.encode(rest, "optimizer").encode())
    return state.hexdigest()


def _text(value: object, where: str) -> str:
    return xxhash.xxh3_64_hexdigest(jsonstate.encode(value, where).encode())


def _python_generator() -> str:
    version, words, gauss = random.getstate()
    return _words(np.array(words, dtype="<u4"), (version, gauss))


def _numpy_generator() -> str:
    kind, words, position, has_gauss, gauss = np.random.get_state(legacy=True)
    return _words(np.asarray(words, dtype="<u4"), (str(kind), int(position), int(has_gauss), float(gauss)))


def _words(words: np.ndarray[tuple[int, ...], np.dtype[np.uint32]], rest: object) -> str:
    state = xxhash.xxh3_64(words.tobytes())
    state.update(repr(rest).encode())
    return state.hexdigest()
