"""Reading shell: the bytes of shards and ledger segments → observations. Files are mapped, each byte hashed once
for the file and once for its tensor, so a checkpoint of any size needs no memory of its own. Of a ledger segment
nothing stays mapped: there may be thousands, and whoever judges their rows maps them again, a part at a time.
"""

from __future__ import annotations

import json
from functools import lru_cache
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import xxhash

from chaos.audit.decode import decode
from chaos.audit.evidence import FileSeen, Segment, SegmentMeta, ShardSeen, TensorSeen
from chaos.audit.formats import FormatError, bulk_digest, require_regular

_BUFFER_BYTES = 1 << 20
_CHECKED_ROWS = 1 << 18  # at once
_SIZES = {
    "BOOL": 1, "U8": 1, "I8": 1, "F8_E4M3": 1, "F8_E5M2": 1, "U16": 2, "I16": 2, "F16": 2, "BF16": 2,
    "U32": 4, "I32": 4, "F32": 4, "U64": 8, "I64": 8, "F64": 8, "C64": 8,
}  # fmt: skip
_NUMBERS = {"F32": "<f4", "F64": "<f8", "I32": "<i4", "I64": "<i8", "F16": "<f2", "U8": "<u1"}
_COLUMNS = {
    "position": np.int64, "sample_id": np.int64, "content": np.uint64, "step": np.int64, "microbatch": np.int32,
}  # fmt: skip
_SHORT_ROWS, _SHORT_KEPT = 1024, 128
_TYPES = {name: pa.from_numpy_dtype(dtype) for name, dtype in _COLUMNS.items()}


def see_file(path: Path, name: str, kind: str) -> FileSeen:
    """Size and digest of the file, and what it holds if it can be read as a `kind` (shard or ledger)."""
    try:
        data = mapped(path)
        size, digest = len(data), bulk_digest(data) if kind == "shard" else _streamed_digest(path)
    except FormatError as error:
        return FileSeen(name, 0, "", problem=str(error))
    except OSError as error:
        return FileSeen(name, 0, "", problem=f"cannot be read: {error.strerror or error}", unreadable=True)
    try:
        if kind == "shard":
            return FileSeen(name, size, digest, shard=parse_shard(data))
        segment = parse_segment(data)
        stored = StoredSegment(segment.meta, path, segment.rows, segment.first)
        return FileSeen(name, size, digest, segment=stored)
    except FormatError as error:
        return FileSeen(name, size, digest, problem=str(error))


def _streamed_digest(path: Path) -> str:
    """The file's bulk digest, from a buffer that stays in the processor's cache. Raises OSError."""
    state, buffer = xxhash.xxh3_128(), bytearray(_BUFFER_BYTES)
    view = memoryview(buffer)
    with open(path, "rb", buffering=0) as file:
        while number := file.readinto(buffer):
            state.update(view[:number])
    return f"xxh3-128:{state.hexdigest()}"


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


class StoredSegment(Segment):
    """A segment in a file. Every look at its rows maps the file anew, and for no longer than the rows are held.

    Of the short ones that were looked at last the rows are kept. Raises OSError or FormatError at a look if the file
    has gone or changed since it was first read.
    """

    def __init__(self, meta: SegmentMeta, path: Path, rows: int, first: int | None) -> None:
        for name, value in (("meta", meta), ("_path", path), ("_rows", rows), ("_first", first)):
            object.__setattr__(self, name, value)

    def __getattr__(self, name: str) -> Any:
        if name in _COLUMNS:
            return getattr(self.part(0, self.rows), name)
        raise AttributeError(name)

    @property
    def rows(self) -> int:
        return int(self.__dict__["_rows"])

    @property
    def first(self) -> int | None:
        found: int | None = self.__dict__["_first"]
        return found

    def part(self, begin: int, end: int) -> Segment:
        """Rows begin … end − 1, as views of a mapping of their own, or of a copy if there are few in all."""
        if self.rows <= _SHORT_ROWS:
            return _short(self).part(begin, end)
        return _segment(self.meta, self.table().slice(begin, end - begin))

    def table(self) -> pa.Table:
        """All rows, as views of a mapping of their own."""
        table = _table(mapped(self.__dict__["_path"]))
        if table.num_rows != self.rows:
            raise FormatError("has changed while it was audited")
        return table


@lru_cache(_SHORT_KEPT)
def _short(segment: StoredSegment) -> Segment:
    """A copy of all rows: several checks look at each segment, and opening a file takes longer than reading a few."""
    seen = segment.table()
    return Segment(segment.meta, **{name: seen[name].to_numpy().copy() for name in _COLUMNS})


def parse_segment(data: memoryview) -> Segment:
    """A ledger segment: an Arrow IPC file with exactly the format's columns. Raises FormatError."""
    table = _table(data)
    try:
        metadata = {key.decode(): value.decode() for key, value in (table.schema.metadata or {}).items()}
        numbers = {key: int(value) for key, value in metadata.items() if value.isdecimal()}
    except ValueError as error:
        raise FormatError(f"is no ledger segment: {error!r:.100}") from error
    if metadata.get("format") != "killpoint.ledger/1":
        raise FormatError(f"is no ledger segment: format {metadata.get('format')!r}")
    meta = decode(SegmentMeta, {**numbers, "run": metadata.get("run")}, "metadata")
    segment = _segment(meta, table)
    for begin in range(0, segment.rows, _CHECKED_ROWS):  # the pieces overlap by a row
        position = segment.position[begin : begin + _CHECKED_ROWS + 1]
        if np.any(position[1:] < position[:-1]):
            raise FormatError("is not sorted by position")
    return segment


def _segment(meta: SegmentMeta, table: pa.Table) -> Segment:
    return Segment(meta, **{name: table[name].to_numpy() for name in _COLUMNS})


def _table(data: memoryview) -> pa.Table:
    try:
        table = pa.ipc.open_file(pa.py_buffer(data)).read_all()
        table.validate(full=True)
        columns = {field.name: field.type for field in table.schema}
        if columns != _TYPES or table.num_columns != len(_TYPES):
            raise FormatError(f"has the columns {', '.join(table.column_names)}, or of other types")
        if any(column.null_count for column in table.columns):
            raise FormatError("has empty values")
    except (pa.ArrowException, OSError, ValueError) as error:
        raise FormatError(f"is no ledger segment: {error!r:.100}") from error
    return table
