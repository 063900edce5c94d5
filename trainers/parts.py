"""The parts of a training state, by name, and their digests (invariant 4). Without torch: the committer uses it.

Replicated parts, equal on every rank: `model` (parameters), `optimizer`. Parts of each rank: `buffers`, `scheduler`,
`scaler`, `progress`, `rng.python`, `rng.numpy`, `rng.torch` and, where there is a GPU, `rng.cuda`. A run that keeps
its best model has two more: `best` (its parameters, replicated) and `best.buffers` (each rank's own). Inside a step
there are also `gradients` (those of this rank alone, before the reduction) and `accumulation`. A part is tensors, JSON
text, or both; the text "null" says that the run has no such part, which is not the same as a missing one.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from storage.digests import BulkDigest

REPLICATED = ("model", "optimizer", "best")
LOCAL = ("buffers", "scheduler", "scaler", "progress", "rng.python", "rng.numpy", "rng.torch", "rng.cuda",
         "best.buffers")
PARTIAL = ("gradients", "accumulation")  # of a step that is not finished
BEST = "best"
_PREFIX = {"model": "model/", "optimizer": "optimizer/", "buffers": "buffer/", "rng.torch": "rng/torch",
           "rng.cuda": "rng/cuda", "best": "best/", "best.buffers": "best_buffer/", "gradients": "gradient/",
           "accumulation": "accumulation/"}
_NOT_ALWAYS = ("rng.cuda", *PARTIAL)


def is_replicated(tensor: str) -> bool:
    return tensor.partition("/")[0] in REPLICATED


def part_digests(parts: Iterable[str], tensors: Mapping[str, str], texts: Mapping[str, str]) -> dict[str, str]:
    """Digest of each part from its tensors' digests and its JSON text (format: storage/README.md)."""
    digests: dict[str, str] = {}
    for part in parts:
        prefix = _PREFIX.get(part)
        names = sorted(name for name in tensors if prefix and name.startswith(prefix))
        if (part in _NOT_ALWAYS and not names) or (part in ("best", "best.buffers") and BEST not in texts):
            continue
        hasher = BulkDigest()
        for name in names:
            hasher.update(name.encode() + b"\0" + tensors[name].encode() + b"\n")
        if part in texts:
            hasher.update(b"json\0" + texts[part].encode())
        digests[part] = hasher.digest()
    return digests
