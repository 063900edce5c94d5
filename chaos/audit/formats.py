"""Byte formats, read a second time from their description: sealed JSON, digests, names (invariants 1 and 4).

Bulk digests are XXH3-128 of raw bytes; sealed files and history lines use SHA-256 over canonical JSON.
"""

from __future__ import annotations

import hashlib
import json
import os
import re
import stat
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any, BinaryIO

import xxhash

Buffer = bytes | memoryview


class FormatError(Exception):
    """Bytes are not what their format says. Stays inside the audit: the reader makes an observation of it."""


def read_regular(path: Path) -> bytes:
    """The file's bytes. Raises OSError, and FormatError for what is no regular file: a FIFO would never end."""
    with open_regular(path) as file:
        return file.read()


@contextmanager
def open_regular(path: Path) -> Iterator[BinaryIO]:
    """The file, open for reading. Raises as `read_regular` does."""
    descriptor = os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC)
    with open(descriptor, "rb", buffering=1 << 20) as file:
        require_regular(os.fstat(descriptor))
        yield file


def require_regular(status: os.stat_result) -> None:
    """Raises FormatError unless it is the status of a regular file."""
    if not stat.S_ISREG(status.st_mode):
        raise FormatError("is no regular file")


_ENCODE = json.JSONEncoder(sort_keys=True, separators=(",", ":"), ensure_ascii=True, allow_nan=False).encode


def canonical(value: object) -> bytes:
    """The one JSON encoding of `value`. Raises ValueError for numbers that JSON lacks."""
    return _ENCODE(value).encode("ascii")


def sha256_text(data: bytes) -> str:
    return "sha256:" + hashlib.sha256(data).hexdigest()


def unseal(data: bytes) -> tuple[dict[str, Any], str]:
    """Body and digest of a sealed file. Raises FormatError unless every byte is as it was sealed."""
    try:
        outer = json.loads(data)
        body = outer["body"]
        digest = sha256_text(canonical(body))
        sealed = canonical({"body": body, "digest": digest}) + b"\n"
    except (ValueError, KeyError, TypeError, RecursionError) as error:
        raise FormatError(f"is no sealed file ({len(data)} bytes: {_short(error)})") from error
    if sealed != data or not isinstance(body, dict):
        raise FormatError("does not match its own digest: bytes were changed after it was sealed")
    return body, digest


def bulk_digest(*buffers: Buffer) -> str:
    """`xxh3-128:<32 hex>` of the buffers' bytes, one after another."""
    state = xxhash.xxh3_128()
    for buffer in buffers:
        state.update(buffer)
    return f"xxh3-128:{state.hexdigest()}"


TENSOR_PREFIX: Mapping[str, str] = {
    "model": "model/",
    "optimizer": "optimizer/",
    "buffers": "buffer/",
    "rng.torch": "rng/torch",
    "rng.cuda": "rng/cuda",
    "gradients": "gradient/",
    "accumulation": "accumulation/",
    "best": "best/",
    "best.buffers": "best_buffer/",
}
TEXT_PARTS = frozenset(
    {"optimizer", "scheduler", "scaler", "progress", "rng.python", "rng.numpy", "accumulation"}
)
SHARED_PARTS = frozenset({"model", "optimizer"})
RANK_PARTS = frozenset({"buffers", "scheduler", "scaler", "progress", "rng.python", "rng.numpy", "rng.torch"})
BEST = "best"  # a shared part that only a run which keeps its best model has
MAYBE_RANK_PARTS = frozenset({"rng.cuda", "best.buffers"})  # the latter wherever there is `best`
PARTIAL_PARTS = frozenset({"gradients", "accumulation"})  # of a checkpoint inside a step, besides
_INSIDE = re.compile(r"s[0-9]{8,}-m([0-9]{4,})-a[0-9]{4,}")


def is_shared(tensor: str) -> bool:
    """Whether a tensor is replicated: kept once for all ranks."""
    return tensor.startswith(("model/", "optimizer/", "best/"))


def part_digest(part: str, tensors: Mapping[str, str], text: str | None) -> str:
    """Digest of one part, from the digests of all tensors (name → digest) and from its JSON text."""
    prefix = TENSOR_PREFIX.get(part)
    names = sorted(name for name in tensors if prefix is not None and name.startswith(prefix))
    pieces = [f"{name}\0{tensors[name]}\n".encode() for name in names]
    if text is not None:
        pieces.append(b"json\0" + text.encode())
    return bulk_digest(*pieces)


def checkpoint_name(step: int, attempt: int, microbatch: int = 0) -> str:
    return f"s{step:08d}{f'-m{microbatch:04d}' if microbatch else ''}-a{attempt:04d}"


def microbatch_of(name: str) -> int:
    """How many microbatches of the next update a checkpoint's name says that it holds; 0 at a step's boundary."""
    match = _INSIDE.fullmatch(name)
    return int(match[1]) if match else 0


def file_path(kind: str, name: str, rank: int) -> str:
    """Where the rank's shard or ledger segment lies, relative to the store."""
    if kind == "shard":
        return f"shards/{name}-r{rank:04d}.safetensors"
    return f"ledger/{name}-r{rank:04d}.arrow"


def _short(error: Exception) -> str:
    return f"{type(error).__name__}: {error}"[:120]
