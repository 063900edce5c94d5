"""Datasets: written, opened, digested, read by sample id; what has no single representation is refused."""

from __future__ import annotations

import hashlib
import json
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
import xxhash
from hypothesis import given, settings
from hypothesis import strategies as st

from trainers.dataset import Dataset, column_array, open_dataset, read_samples, write_shards
from trainers.errors import DatasetError

ROWS = 45


def _columns() -> dict[str, np.ndarray]:  # type: ignore[type-arg]
    ids = np.arange(ROWS)
    x = (ids[:, None] * 4 + np.arange(4)).astype(np.float32)
    return {"y": ids.astype(np.float64) / 3, "b": ids.astype(np.uint8), "x": x}


@pytest.fixture(scope="module")
def dataset(tmp_path_factory: pytest.TempPathFactory) -> Dataset:
    folder = tmp_path_factory.mktemp("base") / "data"
    write_shards(folder, _columns(), files=3, group_rows=8)
    return open_dataset(folder)


def test_what_is_known_of_a_folder(dataset: Dataset) -> None:
    assert (dataset.rows, dataset.group_rows, dataset.columns) == (ROWS, 8, ("b", "x", "y"))
    assert dataset.row_bytes == 8 + 1 + 16
    assert [(g.first_row, g.rows) for g in dataset.row_groups] == [(0, 8), (8, 8), (16, 8), (24, 8), (32, 8), (40, 5)]
    assert len({g.path for g in dataset.row_groups}) == 3


def test_the_fingerprint_is_that_of_the_description(dataset: Dataset) -> None:
    listed = []
    for file in sorted(Path(dataset.folder).glob("*.parquet")):
        digest = f"xxh3-128:{xxhash.xxh3_128_hexdigest(file.read_bytes())}"
        listed.append([file.name, file.stat().st_size, pq.read_metadata(file).num_rows, digest])
    text = json.dumps(listed, sort_keys=True, separators=(",", ":"))
    assert dataset.fingerprint == "sha256:" + hashlib.sha256(text.encode()).hexdigest()


def test_a_changed_file_or_name_changes_the_fingerprint(tmp_path: Path, dataset: Dataset) -> None:
    columns = _columns()
    columns["y"][-1] += 1
    write_shards(tmp_path / "other", columns, files=3, group_rows=8)
    assert open_dataset(tmp_path / "other").fingerprint != dataset.fingerprint
    write_shards(tmp_path / "same", _columns(), files=3, group_rows=8)
    assert open_dataset(tmp_path / "same").fingerprint == dataset.fingerprint
    (tmp_path / "same" / "shard-00002.parquet").rename(tmp_path / "same" / "shard-00009.parquet")
    assert open_dataset(tmp_path / "same").fingerprint != dataset.fingerprint


@settings(max_examples=30, deadline=None)
@given(st.lists(st.integers(0, ROWS - 1), min_size=1, max_size=30))
def test_rows_come_in_the_order_that_was_asked_for(dataset: Dataset, ids: list[int]) -> None:
    table = read_samples(dataset, np.array(ids, dtype=np.int64))
    for name, values in _columns().items():
        assert np.array_equal(column_array(table[name]), values[ids])
        assert column_array(table[name]).dtype == values.dtype


def test_uneven_files_and_groups_are_numbered_through(tmp_path: Path) -> None:
    for number, rows in enumerate((3, 0, 7)):
        ids = pa.array(np.arange(rows, dtype=np.int64) + 3 * (number > 0))
        pq.write_table(pa.table({"i": ids}), tmp_path / f"{number}.parquet", row_group_size=4)
    dataset = open_dataset(tmp_path)
    assert [(group.first_row, group.rows) for group in dataset.row_groups] == [(0, 3), (3, 4), (7, 3)]
    assert column_array(read_samples(dataset, np.arange(10)[::-1])["i"]).tolist() == list(range(9, -1, -1))


def test_no_folder_and_no_file_are_errors(tmp_path: Path) -> None:
    for folder in (tmp_path, tmp_path / "none"):
        with pytest.raises(DatasetError, match=r"no \*\.parquet file in .*point the workload"):
            open_dataset(folder)


def test_no_rows_is_an_error(tmp_path: Path) -> None:
    pq.write_table(pa.table({"i": pa.array([], pa.int64())}), tmp_path / "a.parquet")
    with pytest.raises(DatasetError, match="hold no rows"):
        open_dataset(tmp_path)


def test_a_file_that_is_no_parquet_is_named(tmp_path: Path) -> None:
    (tmp_path / "a.parquet").write_bytes(b"PAR1 not really")
    with pytest.raises(DatasetError, match=r"cannot read the Parquet shard .*a\.parquet"):
        open_dataset(tmp_path)


def test_shards_that_disagree_are_an_error(tmp_path: Path) -> None:
    pq.write_table(pa.table({"i": pa.array([1], pa.int64())}), tmp_path / "a.parquet")
    pq.write_table(pa.table({"i": pa.array([1], pa.int32())}), tmp_path / "b.parquet")
    with pytest.raises(DatasetError, match=r"b\.parquet has another schema than .*a\.parquet"):
        open_dataset(tmp_path)


@pytest.mark.parametrize(
    "column",
    [pa.array(["text"]), pa.array([True]), pa.array([b"raw"]), pa.array([[1, 2]]), pa.array([{"a": 1}]),
     pa.array([["a"]], pa.list_(pa.string(), 1))],
    ids=["string", "bool", "binary", "list", "struct", "list of strings"],
)  # fmt: skip
def test_columns_without_one_representation_are_refused(tmp_path: Path, column: pa.Array) -> None:
    pq.write_table(pa.table({"good": pa.array([1]), "bad": column}), tmp_path / "a.parquet")
    with pytest.raises(DatasetError, match=r"column 'bad' of .* is .*: use integers, floats or fixed-size lists"):
        open_dataset(tmp_path)


def test_a_null_is_refused(tmp_path: Path) -> None:
    pq.write_table(pa.table({"i": pa.array([1, None], pa.int64())}), tmp_path / "a.parquet")
    table = read_samples(open_dataset(tmp_path), np.array([0, 1]))
    with pytest.raises(DatasetError, match="holds a null"):
        column_array(table["i"])


def test_a_column_of_several_chunks_is_one_array() -> None:
    column = pa.chunked_array([pa.array([1, 2], pa.int32()), pa.array([3], pa.int32())])
    assert column_array(column).tolist() == [1, 2, 3]
    lists = pa.FixedSizeListArray.from_arrays(pa.array(np.arange(6, dtype=np.int8)), 2)
    assert column_array(pa.chunked_array([lists[:1], lists[1:]])).tolist() == [[0, 1], [2, 3], [4, 5]]


def test_a_folder_that_is_there_is_kept(tmp_path: Path) -> None:
    write_shards(tmp_path / "data", _columns(), files=1, group_rows=8)
    before = open_dataset(tmp_path / "data").fingerprint
    columns = _columns()
    columns["y"] += 1
    write_shards(tmp_path / "data", columns, files=1, group_rows=8)
    assert open_dataset(tmp_path / "data").fingerprint == before


def test_a_folder_that_cannot_be_made_is_an_error(tmp_path: Path) -> None:
    (tmp_path / "data").write_text("in the way")
    with pytest.raises(DatasetError, match="cannot write the dataset"):
        write_shards(tmp_path / "data", _columns(), files=1, group_rows=8)
