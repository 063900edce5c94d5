"""State shards: ordinary safetensors files, written without copying the state (invariants 1 and 4).

A shard is a header, which `shard_header` makes, and one contiguous data buffer, the staging buffer itself.
`write_shard` takes the digest from memory, slice by slice just before the slice is written, so it describes
the bytes that were handed over and costs little beside the write. `parse_shard` trusts nothing: every offset
is checked before a view is made. The safetensors format: 8 bytes little-endian header length, JSON header,
data.
"""

from __future__ import annotations

import json
import struct
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from math import prod
from typing import Any

from storage.digests import BulkDigest, bulk_digest
from storage.errors import Abandoned, Damaged
from storage.manifest import FileRecord
from storage.objects import BulkWriter, Objects, Reached, no_point

FORMAT = "killpoint.shard/1"
DTYPE_BYTES: Mapping[str, int] = {
    "BOOL": 1, "U8": 1, "I8": 1, "F8_E5M2": 1, "F8_E4M3": 1,
    "I16": 2, "U16": 2, "F16": 2, "BF16": 2,
    "I32": 4, "U32": 4, "F32": 4,
    "I64": 8, "U64": 8, "F64": 8, "C64": 8,
}  # fmt: skip
_ALIGNMENT_BYTES = 8
_MAX_HEADER_BYTES = 100_000_000  # the limit of the safetensors library
_SLICE_BYTES = 4 << 20


@dataclass(frozen=True)
class TensorSpec:
    """One tensor of a shard to be written. dtype: safetensors name; bytes: its size, for cross-checking."""

    name: str
    dtype: str
    shape: tuple[int, ...]
    bytes: int


@dataclass(frozen=True)
class TensorView:
    """One tensor of a shard that was read: raw little-endian contiguous bytes, not copied."""

    dtype: str
    shape: tuple[int, ...]
    data: memoryview


@dataclass(frozen=True)
class Shard:
    """A parsed shard. metadata: the header's `__metadata__`; tensors: full name → view into the bytes."""

    metadata: Mapping[str, str]
    tensors: Mapping[str, TensorView]


@dataclass(frozen=True)
class Written:
    """A file that is durable under `path` (an object's name), with the digest of the bytes handed over."""

    path: str
    bytes: int
    digest: str


def never() -> bool:
    """The `cancelled` of a write that nobody cancels."""
    return False


def shard_header(tensors: Sequence[TensorSpec], metadata: Mapping[str, str]) -> bytes:
    """Everything before the data: length, JSON, padded so that the data starts at a multiple of 8 bytes.

    The data must be the tensors' bytes in this order without gaps; put wide types first and all are aligned.
    Raises ValueError for a repeated name, an unknown type, or a size that is not that of type and shape.
    """
    header: dict[str, Any] = {"__metadata__": dict(metadata)}
    at = 0
    for spec in tensors:
        if spec.name in header:
            raise ValueError(f"tensor {spec.name!r} occurs twice, or has the name that safetensors reserves")
        if spec.dtype not in DTYPE_BYTES or spec.bytes != prod(spec.shape) * DTYPE_BYTES[spec.dtype]:
            raise ValueError(f"{spec}: unknown type, or size does not fit type and shape")
        offsets = [at, at + spec.bytes]
        header[spec.name] = {"dtype": spec.dtype, "shape": list(spec.shape), "data_offsets": offsets}
        at += spec.bytes
    text = json.dumps(header, separators=(",", ":"), ensure_ascii=True).encode("ascii")
    text += b" " * (-len(text) % _ALIGNMENT_BYTES)
    return struct.pack("<Q", len(text)) + text


def write_shard(
    objects: Objects,
    name: str,
    header: bytes,
    data: memoryview,
    reached: Reached = no_point,
    cancelled: Callable[[], bool] = never,
) -> Written:
    """Write header and data exclusively under `name` and sync. `data` is read once and never copied.

    Passes shard.opened, shard.half (half of the data handed over), shard.written, shard.data_synced (the name is
    not), shard.synced. `cancelled` is asked before each slice of 4 MiB; if it says yes, raises Abandoned, and the
    partial file stays as a stray. Raises AlreadyExists, StoreFull, Unavailable.
    """
    view = data.cast("B") if data.nbytes else memoryview(b"")
    half = len(view) // 2
    with objects.open_bulk(name) as writer:
        digest = BulkDigest()
        reached("shard.opened")
        _write(writer, digest, name, "shard.opened", (memoryview(header), view[:half]), cancelled)
        reached("shard.half")
        _write(writer, digest, name, "shard.half", (view[half:],), cancelled)
        reached("shard.written")
        writer.sync(lambda point: reached(f"shard.{point}"))
        reached("shard.synced")
    return Written(name, len(header) + len(view), digest.digest())


def write_ledger(
    objects: Objects,
    name: str,
    data: bytes,
    reached: Reached = no_point,
    cancelled: Callable[[], bool] = never,
) -> Written:
    """Write a ledger segment as `write_shard` writes a shard. Passes ledger.opened, .written, .data_synced, .synced."""
    with objects.open_bulk(name) as writer:
        digest = BulkDigest()
        reached("ledger.opened")
        _write(writer, digest, name, "ledger.opened", (memoryview(data),), cancelled)
        reached("ledger.written")
        writer.sync(lambda point: reached(f"ledger.{point}"))
        reached("ledger.synced")
    return Written(name, len(data), digest.digest())


def read_verified(objects: Objects, record: FileRecord) -> bytes:
    """The file's bytes, read once; what is returned is what was verified.

    Raises Damaged (missing, size, digest), which is definite, or Unavailable, which is not. Through the page
    cache this proves the bytes that were handed over, and says nothing about the medium.
    """
    size_bytes = objects.size(record.path)
    if size_bytes != record.bytes:
        raise Damaged(record.path, f"has {size_bytes} bytes, the manifest says {record.bytes}")
    data = objects.read(record.path)
    digest = bulk_digest(data)
    if digest != record.digest or len(data) != record.bytes:
        raise Damaged(record.path, f"has digest {digest}, the manifest says {record.digest}")
    return data


def parse_shard(data: bytes | bytearray, where: str) -> Shard:
    """Metadata and tensors of a shard's bytes. Raises Damaged for anything but a gapless safetensors file.

    The tensors are views into `data`; give a bytearray if they are to be writable.
    """
    header, start = _header(data, where)
    metadata = header.pop("__metadata__", {})
    if not isinstance(metadata, dict) or not all(isinstance(value, str) for value in metadata.values()):
        raise Damaged(where, "__metadata__ must map names to text")
    body = memoryview(data)[start:]
    spans = {name: _span(entry, f"{where}: tensor {name!r}") for name, entry in header.items()}
    end = 0
    for name, (_, _, begin, stop) in sorted(spans.items(), key=lambda item: item[1][2:]):
        if begin != end:
            raise Damaged(
                where, f"tensor {name!r} begins at {begin}, not at {end} where the one before it ends"
            )
        end = stop
    if end != len(body):
        raise Damaged(where, f"tensors end at {end}, the data at {len(body)}")
    views = {name: TensorView(dtype, shape, body[i:j]) for name, (dtype, shape, i, j) in spans.items()}
    return Shard(metadata, views)


def _write(
    writer: BulkWriter,
    digest: BulkDigest,
    name: str,
    passed: str,
    views: tuple[memoryview, ...],
    cancelled: Callable[[], bool],
) -> None:
    for view in views:
        for at in range(0, len(view), _SLICE_BYTES):
            if cancelled():
                raise Abandoned(name, passed)
            piece = view[at : at + _SLICE_BYTES]
            digest.update(piece)
            writer.write(piece)


def _header(data: bytes | bytearray, where: str) -> tuple[dict[str, Any], int]:
    """The JSON header, and where the data starts."""
    length = int.from_bytes(data[:8], "little")
    if len(data) < 8 or length > min(len(data) - 8, _MAX_HEADER_BYTES):
        raise Damaged(where, f"is cut off: {len(data)} bytes, of which the header claims {length}")
    text = data[8 : 8 + length]
    try:
        header = json.loads(text.decode("utf-8"), object_pairs_hook=_unrepeated)
    except (ValueError, RecursionError) as error:
        raise Damaged(where, f"has a header that is not JSON: {error}") from error
    if not text.startswith(b"{") or not isinstance(header, dict):
        raise Damaged(where, "has a header that is not a JSON object")
    return header, 8 + length


def _unrepeated(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    result = dict(pairs)
    if len(result) != len(pairs):
        raise ValueError("a name occurs twice")
    return result


def _span(entry: object, where: str) -> tuple[str, tuple[int, ...], int, int]:
    """(dtype, shape, begin, end) of a header entry, its size checked against type and shape."""
    if not isinstance(entry, dict) or entry.keys() != {"dtype", "shape", "data_offsets"}:
        raise Damaged(where, "must have dtype, shape and data_offsets")
    dtype, shape, offsets = entry["dtype"], entry["shape"], entry["data_offsets"]
    if not isinstance(dtype, str) or dtype not in DTYPE_BYTES:
        raise Damaged(where, f"has the unknown type {dtype!r:.40}")
    if not _counts(shape) or not _counts(offsets) or len(offsets) != 2:
        raise Damaged(where, "has a shape or offsets that are not lists of integers from 0")
    begin, end = offsets
    if end - begin != prod(shape) * DTYPE_BYTES[dtype]:
        raise Damaged(where, f"has {end - begin} bytes, which do not fit {dtype} {shape}")
    return dtype, tuple(shape), begin, end


def _counts(value: object) -> bool:
    return isinstance(value, list) and all(type(number) is int and number >= 0 for number in value)
