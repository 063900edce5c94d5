"""Digests of bulk bytes, of parts of the training state, and of sample contents.

Serves invariants 1, 3 and 4. Bulk digests are XXH3-128 (xxHash specification, `XXH3_128bits`, seed 0,
canonical big-endian hex): they find every accident at memory speed and are no defence against an adversary.
Hashing releases the interpreter lock, so a background save does not hold up the training thread.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
import numpy.typing as npt
import xxhash

Buffer = bytes | bytearray | memoryview | npt.NDArray[Any]
_PREFIX = "xxh3-128:"


class BulkDigest:
    """A digest that grows piece by piece; the pieces' boundaries do not matter."""

    def __init__(self) -> None:
        self._state = xxhash.xxh3_128()

    def update(self, buffer: Buffer) -> None:
        """Take in the bytes of a contiguous buffer, without copying it."""
        self._state.update(buffer.data if isinstance(buffer, np.ndarray) else buffer)

    def digest(self) -> str:
        """`xxh3-128:<32 hex>` of everything so far."""
        return _PREFIX + self._state.hexdigest()


def bulk_digest(*buffers: Buffer) -> str:
    """`xxh3-128:<32 hex>` of the buffers' bytes one after another. Each must be contiguous."""
    state = BulkDigest()
    for buffer in buffers:
        state.update(buffer)
    return state.digest()


def part_digest(tensors: Mapping[str, str], text: str | None = None) -> str:
    """Digest of one part of the state from its tensors' digests (full name → digest) and its JSON text, if
    any.

    XXH3-128 over, sorted by name, `name \\0 digest \\n`, then, if there is a text, `json \\0 text`.
    """
    state = BulkDigest()
    for name in sorted(tensors):
        state.update(f"{name}\0{tensors[name]}\n".encode())
    if text is not None:
        state.update(f"json\0{text}".encode())
    return state.digest()


def sample_content_digests(columns: Mapping[str, npt.NDArray[Any]]) -> npt.NDArray[np.uint64]:
    """One 64-bit content digest a row: XXH3-64 over the row's values, columns in alphabetical order.

    columns: name → array[rows, …] of integers or floats; each value counts as its raw little-endian bytes.
    Returns uint64[rows]. Raises ValueError for no columns, other types, or columns of different lengths.
    """
    if not columns:
        raise ValueError("a sample without content columns has no content digest: name at least one column")
    rows = len(next(iter(columns.values())))
    parts = [_row_bytes(name, columns[name], rows) for name in sorted(columns)]
    table = parts[0] if len(parts) == 1 else np.concatenate(parts, axis=1)
    width = table.shape[1]
    raw = memoryview(table.tobytes())
    hash_row = xxhash.xxh3_64_intdigest
    digests = (hash_row(raw[at : at + width]) for at in range(0, rows * width, width)) if width else ()
    return np.fromiter(digests, dtype=np.uint64, count=rows)


def _row_bytes(name: str, values: npt.NDArray[Any], rows: int) -> npt.NDArray[np.uint8]:
    """values: array[rows, …] → uint8[rows, bytes of one row], little-endian."""
    if values.dtype.kind not in "iuf":
        raise ValueError(f"column {name!r} has type {values.dtype}; only integers and floats can be digested")
    if len(values) != rows:
        raise ValueError(f"column {name!r} has {len(values)} rows where another has {rows}")
    little = np.ascontiguousarray(values, dtype=values.dtype.newbyteorder("<"))
    width = little.itemsize * int(np.prod(little.shape[1:], dtype=np.int64))
    if width == 0:
        raise ValueError(f"column {name!r} holds lists of length 0; leave it out of the content columns")
    return np.frombuffer(little.tobytes(), dtype=np.uint8).reshape(rows, width)
