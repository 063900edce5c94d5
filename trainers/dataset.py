"""The dataset: a folder of Parquet shards, its fingerprint, and reading rows by sample id.

A sample id is the row's number over all `*.parquet` files of the folder in name order. Content columns are
integers, floats or fixed-size lists of them, so that a row has exactly one byte representation to digest.
"""

from __future__ import annotations

import hashlib
import shutil
import tempfile
from bisect import bisect_right
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.parquet as pq

from storage.digests import bulk_digest
from storage.sealed import canonical
from trainers.errors import DatasetError


@dataclass(frozen=True)
class RowGroup:
    """One row group: rows [first_row, first_row + rows) of the dataset."""

    path: str
    index: int
    first_row: int
    rows: int


@dataclass(frozen=True)
class Dataset:
    """What is known of the folder without its rows. Picklable; reading tasks carry it."""

    folder: str
    row_groups: tuple[RowGroup, ...]
    columns: tuple[str, ...]
    fingerprint: str
    row_bytes: int

    @property
    def rows(self) -> int:
        last = self.row_groups[-1]
        return last.first_row + last.rows

    @property
    def group_rows(self) -> int:
        """Rows of the first row group: the unit in which the plan permutes."""
        return self.row_groups[0].rows


def open_dataset(folder: Path) -> Dataset:
    """Reads every footer and digests every file of `folder`. Raises DatasetError."""
    files = sorted(folder.glob("*.parquet"))
    if not files:
        raise DatasetError(f"no *.parquet file in {folder}: point the workload at a folder of Parquet shards")
    groups: list[RowGroup] = []
    identity: list[list[object]] = []
    schema: pa.Schema | None = None
    first_row = 0
    for file in files:
        try:
            footer = pq.ParquetFile(file)
            digest = bulk_digest(file.read_bytes())
        except (OSError, pa.ArrowInvalid) as error:
            raise DatasetError(f"cannot read the Parquet shard {file}: {error}") from error
        schema = schema or footer.schema_arrow
        if not footer.schema_arrow.equals(schema):
            raise DatasetError(f"{file} has another schema than {files[0]}: all shards must agree")
        identity.append([file.name, file.stat().st_size, footer.metadata.num_rows, digest])
        for index in range(footer.num_row_groups):
            rows = footer.metadata.row_group(index).num_rows
            if rows:
                groups.append(RowGroup(str(file), index, first_row, rows))
                first_row += rows
    if not groups or schema is None:
        raise DatasetError(f"the Parquet shards in {folder} hold no rows")
    fingerprint = "sha256:" + hashlib.sha256(canonical(identity)).hexdigest()
    row_bytes = sum(_value_bytes(field, folder) for field in schema)
    return Dataset(str(folder), tuple(groups), tuple(sorted(schema.names)), fingerprint, row_bytes)


def _value_bytes(field: pa.Field, folder: Path) -> int:
    kind, count = field.type, 1
    if pa.types.is_fixed_size_list(kind):
        kind, count = kind.value_type, kind.list_size
    if not (pa.types.is_integer(kind) or pa.types.is_floating(kind)):
        raise DatasetError(
            f"column {field.name!r} of {folder} is {field.type}: use integers, floats or fixed-size lists of them"
        )
    return int(kind.bit_width // 8 * count)


def read_samples(dataset: Dataset, ids: npt.NDArray[np.int64]) -> pa.Table:
    """The content columns of the rows `ids` (int64[n]), in that order. Reads each row group once."""
    starts = [group.first_row for group in dataset.row_groups]
    owner = np.array([bisect_right(starts, int(i)) - 1 for i in ids], dtype=np.int64)
    tables: list[pa.Table] = []
    where = np.empty(len(ids), dtype=np.int64)  # row of the concatenated table that answers ids[i]
    base = 0
    for index in np.unique(owner):
        group = dataset.row_groups[int(index)]
        table = pq.ParquetFile(group.path).read_row_group(group.index, columns=list(dataset.columns))
        chosen = owner == index
        where[chosen] = base + (ids[chosen] - group.first_row)
        tables.append(table)
        base += group.rows
    return pa.concat_tables(tables).take(pa.array(where))


def column_array(column: pa.ChunkedArray) -> npt.NDArray[np.generic]:
    """A content column as an array [rows] or [rows, list_size]; nulls are refused."""
    if column.null_count:
        raise DatasetError("the dataset holds a null: every sample needs every value")
    array = column.combine_chunks()
    if pa.types.is_fixed_size_list(array.type):
        flat = array.flatten().to_numpy(zero_copy_only=False)
        return np.ascontiguousarray(flat.reshape(len(array), array.type.list_size))
    return np.ascontiguousarray(array.to_numpy(zero_copy_only=False))


def write_shards(folder: Path, columns: dict[str, npt.NDArray[np.generic]], *, files: int, group_rows: int) -> None:
    """Writes arrays [rows, …] as `files` Parquet shards of whole row groups; the folder appears atomically."""
    arrays = {
        name: pa.array(a) if a.ndim == 1 else pa.FixedSizeListArray.from_arrays(pa.array(a.reshape(-1)), a.shape[1])
        for name, a in columns.items()
    }
    table = pa.table(arrays)
    groups = -(-table.num_rows // group_rows)
    per_file = -(-groups // files) * group_rows
    folder.parent.mkdir(parents=True, exist_ok=True)
    # A folder of its own for every writer: several processes may build the workload for the first time at once.
    partial = Path(tempfile.mkdtemp(dir=folder.parent, prefix=f".{folder.name}."))
    partial.chmod(0o755)
    for number, start in enumerate(range(0, table.num_rows, per_file)):
        shard = table.slice(start, per_file)
        pq.write_table(shard, partial / f"shard-{number:05d}.parquet", row_group_size=group_rows)
    try:
        partial.rename(folder)
    except OSError as error:
        shutil.rmtree(partial, ignore_errors=True)
        if not folder.is_dir():
            raise DatasetError(f"cannot write the dataset to {folder}: {error}") from error
