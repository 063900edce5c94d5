"""Reading shell: the bytes of shards and ledger segments → observations. Files are mapped, each byte hashed once
for the file and once for its tensor, so a checkpoint of any size needs no memory of its own.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa

from chaos.audit.decode import decode
from chaos.audit.evidence import FileSeen, Segment, SegmentMeta, ShardSeen, TensorSeen
from chaos.audit.formats import FormatError, bulk_digest, require_regular

_SIZES = {
    "BOOL": 1, "U8": 1, "I8": 1, "F8_E4M3": 1, "F8_E5M2": 1, "U16": 2, "I16": 2, "F16": 2, "BF16": 2,
    "U32": 4, "I32": 4, "F32": 4, "U64": 8, "I64": 8, "F64": 8, "C64": 8,
}  # fmt: skip
_NUMBERS = {"F32": "<f4", "F64": "<f8", "I32": "<i4", "I64": "<i8", "F16": "<f2", "U8": "<u1"}
_COLUMNS = {
    "position": np.int64, "sample_id": np.int64, "content": np.uint64, "step": np.int64, "microbatch": np.int32,
}  # fmt: skip


def see_file(path: Path, name: str, kind: str) -> FileSeen:
    """Size and digest of the file, and what it holds if it can be read as a `kind` (shard or ledger)."""
    try:
        data = mapped(path)
    except FormatError as error:
        return FileSeen(name, 0, "", problem=str(error))
    except OSError as error:
        return FileSeen(name, 0, "", problem=f"cannot be read: {error.strerror or error}", unreadable=True)
    size, digest = len(data), bulk_digest(data)
    try:
        if kind == "shard":
            return FileSeen(name, size, digest, shard=parse_shard(data))
        return FileSeen(name, size, digest, segment=parse_segment(data))
    except FormatError as error:
        return FileSeen(name, size, digest, problem=str(error))


def mapped(path: Path) -> memoryview:
    """The file's bytes, mapped. No descriptor stays open (`mmap` would keep one), as there may be thousands.

    Raises OSError, and FormatError for what is no regular file.
    """
    require_regular(path.stat())
    with pa.memory_map(str(path)) as file:
        return memoryview(file.read_buffer())


def parse_shard(data: memoryview) -> ShardSeen:
    """A safetensors file whose tensors cover its data without gap or overlap. Raises FormatError."""
    length = int.from_bytes(data[:8], "little")
    if len(data) < 8 or length > len(data) - 8:
        raise FormatError(
            f"is no safetensors file: its header of {length} bytes does not fit into {len(data)}"
        )
    try:
        header = json.loads(bytes(data[8 : 8 + length]))
        metadata = header.pop("__metadata__", {})
        body = data[8 + length :]
        spans = sorted((*map(int, entry["data_offsets"]), name) for name, entry in header.items())
        end = 0
        for begin, stop, name in spans:
            if begin != end or stop < begin or stop > len(body):
                raise FormatError(f"tensor {name} lies at {begin} to {stop}, the one before ends at {end}")
            end = stop
        if end != len(body):
            raise FormatError(f"has {len(body)} bytes of data, its tensors {end}")
        tensors = {name: _tensor(header[name], body[begin:stop], name) for begin, stop, name in spans}
    except (ValueError, KeyError, TypeError, AttributeError, RecursionError) as error:
        raise FormatError(f"has a header that is none of safetensors: {error!r:.100}") from error
    if not isinstance(metadata, dict) or not all(isinstance(value, str) for value in metadata.values()):
        raise FormatError("has metadata that is not text")
    return ShardSeen(metadata, tensors)


def _tensor(entry: dict[str, Any], data: memoryview, name: str) -> TensorSeen:
    dtype, shape = entry["dtype"], tuple(map(int, entry["shape"]))
    count = 1
    for extent in shape:
        count *= extent
    if _SIZES[dtype] * count != len(data):
        raise FormatError(f"tensor {name} has {len(data)} bytes, which are no {dtype}{list(shape)}")
    value = float(np.frombuffer(data, _NUMBERS[dtype])[0]) if count == 1 and dtype in _NUMBERS else None
    return TensorSeen(dtype, shape, bulk_digest(data), value)


def parse_segment(data: memoryview) -> Segment:
    """A ledger segment: an Arrow IPC file with exactly the format's columns. Raises FormatError."""
    try:
        table = pa.ipc.open_file(pa.py_buffer(data)).read_all()
        table.validate(full=True)
        metadata = {key.decode(): value.decode() for key, value in (table.schema.metadata or {}).items()}
        expected = {name: pa.from_numpy_dtype(dtype) for name, dtype in _COLUMNS.items()}
        if {field.name: field.type for field in table.schema} != expected or table.num_columns != len(
            expected
        ):
            raise FormatError(f"has the columns {', '.join(table.column_names)}, or of other types")
        if any(column.null_count for column in table.columns):
            raise FormatError("has empty values")
        columns = {name: table[name].to_numpy() for name in _COLUMNS}
        numbers = {key: int(value) for key, value in metadata.items() if value.isdecimal()}
    except (pa.ArrowException, OSError, ValueError) as error:
        raise FormatError(f"is no ledger segment: {error!r:.100}") from error
    if metadata.get("format") != "killpoint.ledger/1":
        raise FormatError(f"is no ledger segment: format {metadata.get('format')!r}")
    meta = decode(SegmentMeta, {**numbers, "run": metadata.get("run")}, "metadata")
    if np.any(columns["position"][1:] < columns["position"][:-1]):
        raise FormatError("is not sorted by position")
    return Segment(meta, **columns)
