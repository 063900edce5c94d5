"""Staging: one rank's part of the state, copied at the step boundary into buffers that exist already.

The copy is the only stall of a save. The buffer is laid out as the data section of the shard file, so that the
background write sends it to disk as it lies. It is never written to while the previous save reads it.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
import torch

from storage.shard import TensorSpec, TensorView
from trainers.accumulation import Partial
from trainers.state import Progress, json_parts, local_tensors, replicated_tensors
from trainers.workload import Workload

_DTYPES = {
    torch.float64: "F64", torch.float32: "F32", torch.float16: "F16", torch.bfloat16: "BF16", torch.int64: "I64",
    torch.int32: "I32", torch.int16: "I16", torch.int8: "I8", torch.uint8: "U8", torch.bool: "BOOL",
}
_AS_BYTES = 1 << 16
_TORCH_DTYPES = {name: dtype for dtype, name in _DTYPES.items()}


def as_tensor(view: TensorView) -> torch.Tensor:
    """A tensor over the bytes of a shard that was read; shares their memory."""
    if not len(view.data):
        return torch.empty(view.shape, dtype=_TORCH_DTYPES[view.dtype])
    return torch.frombuffer(view.data, dtype=torch.uint8).view(_TORCH_DTYPES[view.dtype]).view(view.shape)


@dataclass(frozen=True)
class Snapshot:
    """What is in the staging buffer: names and sizes in file order, and the texts of the same moment."""

    specs: tuple[TensorSpec, ...]
    texts: Mapping[str, str]
    data: memoryview


_Layout = tuple[tuple[str, torch.dtype, torch.Size], ...]


@dataclass(frozen=True)
class _Fitted:
    """Where each tensor of one layout lies in the buffer."""

    views: tuple[torch.Tensor, ...]
    specs: tuple[TensorSpec, ...]
    bytes: int


def owner_of(sizes: Mapping[str, int], ranks: int) -> dict[str, int]:
    """Which rank writes each replicated tensor: the largest first, each to the least loaded. Same on every rank."""
    load = [0] * ranks
    owner: dict[str, int] = {}
    for name in sorted(sizes, key=lambda n: (-sizes[n], n)):
        rank = load.index(min(load))
        owner[name] = rank
        load[rank] += sizes[name]
    return owner


def _copy(view: torch.Tensor, tensor: torch.Tensor) -> None:
    """Into the buffer. Large ones as bytes: places in the buffer are seldom on a cache line, where copying element by
    element takes a third longer than copying memory.
    """
    if tensor.nbytes >= _AS_BYTES and tensor.is_cpu and tensor.is_contiguous() and not tensor.is_neg():
        np.copyto(_memory(view), _memory(tensor.detach()))
    else:
        view.copy_(tensor, non_blocking=True)


def _memory(tensor: torch.Tensor) -> npt.NDArray[np.uint8]:
    found: npt.NDArray[np.uint8] = tensor.view(-1).view(torch.uint8).numpy()
    return found


class Staging:
    """Preallocated, contiguous, pinned where there is a GPU. Grows when the state does (lazily made optimizers)."""

    def __init__(self, rank: int, ranks: int) -> None:
        self.rank, self._ranks = rank, ranks
        self._flat = torch.empty(0, dtype=torch.uint8)
        self._layouts: dict[_Layout, _Fitted] = {}

    def prepare(self, workload: Workload, progress: Progress | None = None, partial_bytes: int = 0) -> None:
        """Allocates for the state as it is, so that the first save need not; for a step's partial state besides."""
        own = self._own(workload, progress or Progress(), None)
        self._allocate(sum(t.nbytes for t in own.values()) + partial_bytes)
        self._fit(own)

    def copy(self, workload: Workload, progress: Progress, partial: Partial | None = None) -> Snapshot:
        """Copies this rank's part of the state. Returns what was copied; valid until the next copy."""
        own = self._own(workload, progress, partial)
        fitted = self._fit(own)
        for view, tensor in zip(fitted.views, own.values(), strict=True):
            _copy(view, tensor)
        if torch.cuda.is_available():
            torch.cuda.current_stream().synchronize()
        texts = json_parts(workload, progress) | (partial.texts() if partial else {})
        return Snapshot(fitted.specs, texts, self._flat[: fitted.bytes].numpy().data)

    def _own(self, workload: Workload, progress: Progress, partial: Partial | None) -> dict[str, torch.Tensor]:
        best = progress.best_model
        shared = replicated_tensors(workload, best)
        owner = owner_of({name: t.nbytes for name, t in shared.items()}, self._ranks)
        own = {name: t for name, t in shared.items() if owner[name] == self.rank} | local_tensors(workload, best)
        own |= partial.tensors(workload) if partial else {}
        # Wide elements first keeps every offset aligned, for the file format allows no padding between tensors; and
        # large tensors before small ones keeps theirs on cache lines, which makes the copy a tenth faster.
        return dict(sorted(own.items(), key=lambda item: (-item[1].element_size(), -item[1].nbytes, item[0])))

    def _allocate(self, size_bytes: int) -> None:
        if size_bytes > len(self._flat):
            self._flat = torch.zeros(size_bytes, dtype=torch.uint8, pin_memory=torch.cuda.is_available())
            self._layouts = {}

    def _fit(self, own: Mapping[str, torch.Tensor]) -> _Fitted:
        """Places in the buffer, made once for each layout: inside a step there is more to save than at its end."""
        layout = tuple((name, t.dtype, t.shape) for name, t in own.items())
        if layout not in self._layouts:
            self._allocate(sum(t.nbytes for t in own.values()))
            views, specs, offset = [], [], 0
            for name, tensor in own.items():
                piece = self._flat[offset : offset + tensor.nbytes]
                views.append(piece.view(tensor.dtype).view(tensor.shape))
                specs.append(TensorSpec(name, _DTYPES[tensor.dtype], tuple(tensor.shape), tensor.nbytes))
                offset += tensor.nbytes
            self._layouts[layout] = _Fitted(tuple(views), tuple(specs), offset)
        return self._layouts[layout]

