from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st
from storage_kit import rows

from storage.errors import Damaged
from storage.ledger import FORMAT, LedgerRows, SegmentMeta, decode_segment, encode_segment

META = SegmentMeta("r1", 2, 9, 1, 6, 8)
I64 = st.integers(-(2**63), 2**63 - 1)
ROW = st.tuples(I64, I64, st.integers(0, 2**64 - 1), I64, st.integers(-(2**31), 2**31 - 1))
TYPES = (np.int64, np.int64, np.uint64, np.int64, np.int32)


def columns(table: list[tuple[int, ...]]) -> LedgerRows:
    arrays = [np.array([row[i] for row in table], dtype=kind) for i, kind in enumerate(TYPES)]
    return LedgerRows(*arrays)


def tuples(read: LedgerRows) -> list[tuple[int, ...]]:
    arrays = (read.position, read.sample_id, read.content, read.step, read.microbatch)
    return list(zip(*(array.tolist() for array in arrays), strict=True))


@given(st.lists(ROW, max_size=30))
def test_roundtrip_sorts_by_position_and_keeps_ties_in_order(table: list[tuple[int, ...]]) -> None:
    read, meta = decode_segment(encode_segment(columns(table), META), "x")
    assert tuples(read) == sorted(table, key=lambda row: row[0])
    assert meta == META
    assert [getattr(read, name).dtype for name in vars(read)] == list(TYPES)
    assert len(read) == len(table)


def test_is_the_arrow_file_that_the_format_describes() -> None:
    with pa.ipc.open_file(encode_segment(rows(range(4)), META)) as reader:
        schema = reader.schema
    assert schema.metadata == {
        b"format": FORMAT.encode(), b"run": b"r1", b"attempt": b"2", b"step": b"9", b"rank": b"1",
        b"first_step": b"6", b"last_step": b"8",
    }  # fmt: skip
    types = {
        "position": "int64",
        "sample_id": "int64",
        "content": "uint64",
        "step": "int64",
        "microbatch": "int32",
    }
    assert {field.name: str(field.type) for field in schema} == types


@pytest.mark.parametrize(("first", "last"), [(2, 0), (0, 3), (2, 3)])
def test_a_segment_that_begins_or_ends_inside_a_step(first: int, last: int) -> None:
    meta = replace(META, step=8 if last else 9, first_microbatch=first, microbatch=last)
    data = encode_segment(rows(range(4)), meta)
    assert decode_segment(data, "x")[1] == meta
    with pa.ipc.open_file(data) as reader:
        said = reader.schema.metadata
    assert said.get(b"first_microbatch") == (str(first).encode() if first else None)
    assert said.get(b"microbatch") == (str(last).encode() if last else None)


@pytest.mark.parametrize("text", ["0", "-1", "03", "", "x"])
def test_a_wrong_microbatch_in_the_metadata_is_damaged(text: str) -> None:
    with pa.ipc.open_file(encode_segment(rows(range(4)), META)) as reader:
        table = reader.read_all()
    with pytest.raises(Damaged, match="metadata"):
        decode_segment(arrow(table.replace_schema_metadata({**table.schema.metadata, b"microbatch": text})), "x")


def test_same_rows_same_bytes() -> None:
    assert encode_segment(rows(range(50)), META) == encode_segment(rows(range(50)), META)


@given(st.lists(st.lists(ROW, max_size=5), max_size=4))
def test_pieces_follow_one_another(pieces: list[list[tuple[int, ...]]]) -> None:
    joined = LedgerRows.concatenate([columns(piece) for piece in pieces])
    assert tuples(joined) == [row for piece in pieces for row in piece]
    assert [getattr(joined, name).dtype for name in vars(joined)] == list(TYPES)


def test_pieces_of_another_kind_are_refused() -> None:
    good = rows(range(4))
    halves: Any = good.microbatch / 2
    wrong = LedgerRows(good.position, good.sample_id, good.content, good.step, halves)
    with pytest.raises(TypeError, match="same_kind"):
        LedgerRows.concatenate([wrong])


def test_columns_of_different_lengths_are_refused() -> None:
    good = rows(range(4))
    short = LedgerRows(good.position, good.sample_id[:3], good.content, good.step, good.microbatch)
    with pytest.raises(ValueError, match="sample_id"):
        encode_segment(short, META)


def test_every_cut_is_damaged() -> None:
    data = encode_segment(rows(range(4)), META)
    for length in range(len(data)):
        with pytest.raises(Damaged, match=r"^x: "):
            decode_segment(data[:length], "x")


def arrow(table: pa.Table) -> bytes:
    sink = pa.BufferOutputStream()
    with pa.ipc.new_file(sink, table.schema) as writer:
        writer.write_table(table)
    return bytes(sink.getvalue().to_pybytes())


def table() -> pa.Table:
    with pa.ipc.open_file(encode_segment(rows(range(4)), META)) as reader:
        return reader.read_all()


def test_other_columns_are_damaged() -> None:
    with pytest.raises(Damaged, match="columns"):
        decode_segment(arrow(table().drop_columns(["content"])), "x")
    with pytest.raises(Damaged, match="columns"):
        decode_segment(arrow(table().append_column("more", pa.array([1, 2, 3, 4]))), "x")


def test_empty_values_are_damaged() -> None:
    good = table()
    broken = pa.table(
        [pa.array([0, 1, None, 3]), *good.columns[1:]], schema=good.schema.with_metadata(good.schema.metadata)
    )
    with pytest.raises(Damaged, match="x: "):
        decode_segment(arrow(broken), "x")


def test_unsorted_rows_are_damaged_and_repeated_ones_are_for_the_audit() -> None:
    with pytest.raises(Damaged, match="sorted"):
        decode_segment(arrow(table().take([1, 0, 2, 3])), "x")
    read, _ = decode_segment(arrow(table().take([0, 0, 2, 3])), "x")
    assert read.position.tolist() == [0, 0, 2, 3]


@pytest.mark.parametrize(
    "change",
    [
        {b"rank": b"-1"},
        {b"rank": b"01"},
        {b"rank": b"x"},
        {b"more": b"1"},
        {b"format": b"killpoint.ledger/2"},
        None,
    ],
    ids=str,
)
def test_other_metadata_is_damaged(change: dict[bytes, bytes] | None) -> None:
    metadata = None if change is None else {**table().schema.metadata, **change}
    with pytest.raises(Damaged, match="metadata"):
        decode_segment(arrow(table().replace_schema_metadata(metadata)), "x")
