"""Fingerprints of one step: what the run computed, small enough to record after every update (invariant 5).

One 64-bit digest (XXH3-64, 16 hex digits) a part of the state, the parts named as in `parts.py`, read off the live
tensors without copying them. Two runs that did the same have the same fingerprints at every step; where they part,
the part that differs first says what was lost. They are not the digests of a checkpoint's manifest, which are wider
and made tensor by tensor: those protect what is stored, these compare what was computed.
"""

from __future__ import annotations

import random
from collections.abc import Iterable, Mapping

import numpy as np
import torch
import xxhash

from trainers import jsonstate
from trainers.state import Progress, optimizer_rest
from trainers.workload import Workload


def step_fingerprint(workload: Workload, progress: Progress) -> dict[str, str]:
    """Part → digest, of the state as it is now. Changes nothing and draws nothing."""
    optimizer, scheduler, scaler = workload.optimizer, workload.scheduler, workload.scaler
    # In the parameters' and the names' order: a restore makes the same state in another order.
    states = (optimizer.state.get(parameter, {}) for parameter in workload.model.parameters())
    moments = (state[key] for state in states for key in sorted(state))
    prints = {
        "model": _tensors(workload.model.parameters()),
        "optimizer": _tensors((m for m in moments if isinstance(m, torch.Tensor)), optimizer_rest(workload)),
        "buffers": _tensors(workload.model.buffers()),
        "scheduler": _text(scheduler.state_dict() if scheduler else None, "scheduler"),
        "scaler": _text(scaler.state_dict() if scaler else None, "scaler"),
        "progress": _text(progress.to_json(), "progress"),
        "rng.python": _python_generator(),
        "rng.numpy": _numpy_generator(),
        "rng.torch": _tensors([torch.get_rng_state()]),
    }
    if torch.cuda.is_available():
        prints["rng.cuda"] = _tensors([torch.cuda.get_rng_state()])
    return prints


def _tensors(tensors: Iterable[torch.Tensor], rest: Mapping[str, object] | None = None) -> str:
    state = xxhash.xxh3_64()
    for tensor in tensors:
        flat = tensor.detach().contiguous().cpu()
        state.update((flat.view(torch.int16) if flat.dtype == torch.bfloat16 else flat).numpy().data)
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
