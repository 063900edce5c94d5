"""Reading shell: the Parquet folder → its fingerprint, and content digests of the rows that the ledger names.

A sample id is the row's number over all `*.parquet` files in order of name. A row's content digest is XXH3-64
over its columns in alphabetical order, each value as raw little-endian bytes.
"""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.parquet as pq
import xxhash

from chaos.audit.evidence import I64, Dataset
from chaos.audit.formats import FormatError, bulk_digest, canonical, require_regular, sha256_text
from chaos.audit.read_files import mapped


def read_dataset(folder: Path | None, consumed: Iterable[I64]) -> Dataset:
    """The dataset as it is now, with the contents of every row group that a consumed sample lies in."""
    if folder is None:
        return Dataset("", problem="the history does not say where the dataset is")
    try:
        paths = sorted(folder.glob("*.parquet"))
        for path in paths:
            require_regular(path.stat())
        files = [(path, pq.ParquetFile(path)) for path in paths]
        if not files:
            return Dataset(str(folder), problem=f"no *.parquet file in {folder}")
        rows = sum(file.metadata.num_rows for _, file in files)
        identity = [
            [path.name, path.stat().st_size, file.metadata.num_rows, bulk_digest(mapped(path))]
            for path, file in files
        ]
        groups = _groups([file for _, file in files])
        wanted = _wanted(groups, consumed)
        content, known = _contents([file for _, file in files], groups, wanted)
    except (OSError, ValueError, pa.ArrowException, FormatError) as error:
        return Dataset(str(folder), problem=f"the dataset in {folder} cannot be read: {error}")
    return Dataset(str(folder), sha256_text(canonical(identity)), rows, content, known)


def _groups(files: list[pq.ParquetFile]) -> I64:
    """First row of every row group, and behind the last of them the number of all rows."""
    sizes = [file.metadata.row_group(group).num_rows for file in files for group in range(file.num_row_groups)]
    return np.cumsum([0, *sizes], dtype=np.int64)


def _wanted(groups: I64, consumed: Iterable[I64]) -> npt.NDArray[np.bool_]:
    """In which row groups any of the ids lie."""
    rows = int(groups[-1])
    touched = np.zeros(rows, np.bool_)
    wanted = np.zeros(len(groups) - 1, np.bool_)
    filled = np.flatnonzero(np.diff(groups))
    for ids in consumed:
        inside = len(ids) and ids.min() >= 0 and ids.max() < rows
        touched[ids if inside else ids[(ids >= 0) & (ids < rows)]] = True
        wanted[filled] = np.logical_or.reduceat(touched, groups[filled]) if filled.size else False
        if wanted[filled].all():
            break  # and so on from epoch to epoch
    return wanted


def _contents(
    files: list[pq.ParquetFile], groups: I64, wanted: npt.NDArray[np.bool_]
) -> tuple[npt.NDArray[np.uint64], npt.NDArray[np.bool_]]:
    """Digests uint64[rows], and which of them were computed: untouched pages of both cost no memory."""
    content = np.zeros(int(groups[-1]), np.uint64)
    known = np.zeros(len(content), np.bool_)
    number = 0
    for file in files:
        for group in range(file.num_row_groups):
            first, stop = groups[number : number + 2].tolist()
            if wanted[number]:
                content[first:stop] = row_digests(file.read_row_group(group))
                known[first:stop] = True
            number += 1
    return content, known


def row_digests(table: pa.Table) -> npt.NDArray[np.uint64]:
    """Content digests of the table's rows; uint64[rows]. Raises FormatError for a column of another kind."""
    if not table.num_rows:
        return np.zeros(0, np.uint64)
    columns = [_raw(table[name], name) for name in sorted(table.column_names)]
    width = sum(column.shape[1] for column in columns)
    if not width:
        raise FormatError("holds rows without any value")
    data = memoryview(np.concatenate(columns, axis=1).tobytes())
    digest = xxhash.xxh3_64_intdigest
    starts = range(0, len(data), width)
    return np.fromiter((digest(data[at : at + width]) for at in starts), np.uint64, count=table.num_rows)


def _raw(column: pa.ChunkedArray, name: str) -> npt.NDArray[np.uint8]:
    """The column's values as bytes; uint8[rows, bytes of one row]."""
    kind, rows = column.type, len(column)
    values: Any = column
    while pa.types.is_fixed_size_list(kind):
        if values.null_count:
            raise FormatError(f"column {name} has empty values")
        values = pa.chunked_array([chunk.flatten() for chunk in values.chunks], type=kind.value_type)
        kind = kind.value_type
    if values.null_count or not (pa.types.is_integer(kind) or pa.types.is_floating(kind)):
        raise FormatError(f"column {name} has empty values, or is of type {column.type}")
    flat = values.to_numpy()
    little = flat.astype(flat.dtype.newbyteorder("<"), copy=False)
    return np.ascontiguousarray(little).view(np.uint8).reshape(rows, -1)
