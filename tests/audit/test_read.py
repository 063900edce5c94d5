"""The reading shell on bytes that are not what they should be: every one becomes an observation, none an exception."""

from __future__ import annotations

import contextlib
import json
import os
import resource
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import audit_files as files
import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from chaos.audit.decode import decode
from chaos.audit.evidence import Chains
from chaos.audit.formats import FormatError, bulk_digest, canonical, part_digest, unseal
from chaos.audit.read_dataset import row_digests
from chaos.audit.read_files import parse_segment, parse_shard, see_file

TENSORS = {"model/a": np.arange(3, dtype=np.float32), "optimizer/a/step": np.array(7.0, np.float32)}
ROWS = {
    "position": np.arange(4), "sample_id": np.array([3, 1, 0, 2]), "content": np.arange(4, dtype=np.uint64),
    "step": np.zeros(4, np.int64), "microbatch": np.zeros(4, np.int64),
}  # fmt: skip
META = {"run": "r", "attempt": 0, "step": 1, "rank": 0, "first_step": 0, "last_step": 0}


def shard(header: Any, body: bytes = b"\0" * 8) -> memoryview:
    text = header if isinstance(header, bytes) else json.dumps(header).encode()
    return memoryview(len(text).to_bytes(8, "little") + text + body)


def tensor(begin: int, end: int, dtype: str = "F32", shape: tuple[int, ...] = (2,)) -> dict[str, Any]:
    return {"dtype": dtype, "shape": list(shape), "data_offsets": [begin, end]}


def test_a_shard_is_read_whole() -> None:
    seen = parse_shard(memoryview(files.shard({"step": "4"}, TENSORS)))
    assert seen.metadata == {"step": "4"}
    assert seen.tensors["model/a"].shape == (3,)
    assert seen.tensors["model/a"].digest == files.bulk(TENSORS["model/a"].tobytes())
    assert (seen.tensors["model/a"].value, seen.tensors["optimizer/a/step"].value) == (None, 7.0)


@pytest.mark.parametrize(
    ("data", "words"),
    [
        (memoryview(b"abc"), "its header of"),
        (memoryview(b"\xff" * 16), "does not fit into 16"),
        (shard(b"{"), "none of safetensors"),
        (shard([1]), "none of safetensors"),
        (shard({"t": tensor(0, 8), "__metadata__": {"a": 1}}), "metadata that is not text"),
        (shard({"t": tensor(0, 8), "__metadata__": [1]}), "metadata that is not text"),
        (shard({"t": tensor(0, 8, shape=(3,))}), "which are no F32[3]"),
        (shard({"t": tensor(0, 8, "F64")}), "which are no F64[2]"),
        (shard({"t": tensor(0, 8, "F33")}), "none of safetensors"),
        (shard({"t": tensor(4, 8, shape=(1,))}), "the one before ends at 0"),
        (shard({"t": tensor(0, 16)}), "lies at 0 to 16"),
        (shard({"t": tensor(0, 8), "u": tensor(4, 8, shape=(1,))}), "lies at 4 to 8"),
        (shard({"t": tensor(0, 4, shape=(1,))}), "has 8 bytes of data, its tensors 4"),
        (shard({"t": {"dtype": "F32", "shape": [2]}}), "none of safetensors"),
        (shard({"t": 3}), "none of safetensors"),
    ],
)
def test_a_shard_that_is_none(data: memoryview, words: str) -> None:
    with pytest.raises(FormatError) as caught:
        parse_shard(data)
    assert words in str(caught.value)


@settings(max_examples=200, deadline=None)
@given(st.data())
def test_no_bytes_of_a_shard_raise_anything_else(data: st.DataObject) -> None:
    raw = bytearray(files.shard({"step": "4"}, TENSORS))
    for _ in range(data.draw(st.integers(1, 4))):
        raw[data.draw(st.integers(0, len(raw) - 1))] = data.draw(st.integers(0, 255))
    with contextlib.suppress(FormatError):
        parse_shard(memoryview(bytes(raw)))


def test_a_segment_is_read_whole() -> None:
    seen = parse_segment(memoryview(files.segment(ROWS, META)))
    assert seen.sample_id.tolist() == [3, 1, 0, 2]
    assert seen.meta.last_step == 0


def segment(change: Any) -> memoryview:
    """Another table in place of the segment's."""
    table = pa.ipc.open_file(files.segment(ROWS, META)).read_all()
    table = change(table)
    sink = pa.BufferOutputStream()
    with pa.ipc.new_file(sink, table.schema) as writer:
        writer.write_table(table)
    return memoryview(sink.getvalue().to_pybytes())


@pytest.mark.parametrize(
    ("change", "words"),
    [
        (lambda t: t.drop_columns("content"), "has the columns position, sample_id, step, microbatch"),
        (lambda t: t.set_column(0, "position", t["position"].cast(pa.int32())), "or of other types"),
        (lambda t: t.append_column("step", t["step"]), "has the columns"),
        (lambda t: t.set_column(1, "sample_id", pa.array([1, None, 2, 3])), "has empty values"),
        (lambda t: t.replace_schema_metadata({}), "format None"),
        (lambda t: t.replace_schema_metadata({**t.schema.metadata, b"step": b"x"}), "metadata lacks step"),
        (lambda t: t.replace_schema_metadata({**t.schema.metadata, b"run": b"\xff"}), "is no ledger segment"),
        (
            lambda t: t.take([1, 0, 2, 3]).replace_schema_metadata(t.schema.metadata),
            "is not sorted by position",
        ),
    ],
)
def test_a_segment_that_is_none(change: Any, words: str) -> None:
    with pytest.raises(FormatError) as caught:
        parse_segment(segment(change))
    assert words in str(caught.value)


@pytest.mark.parametrize("data", [b"", b"ARROW1", files.segment(ROWS, META)[:-20]])
def test_bytes_that_are_no_arrow_file(data: bytes) -> None:
    with pytest.raises(FormatError, match="is no ledger segment"):
        parse_segment(memoryview(data))


def test_a_file_that_cannot_be_opened(tmp_path: Path) -> None:
    seen = see_file(tmp_path / "x", "shards/x", "shard")
    assert seen.unreadable
    assert seen.problem is not None
    assert "cannot be read" in seen.problem


def test_a_fifo_is_no_shard(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "x")
    seen = see_file(tmp_path / "x", "shards/x", "shard")
    assert (seen.problem, seen.unreadable) == ("is no regular file", False)


def test_thousands_of_files_may_be_mapped_at_once(tmp_path: Path) -> None:
    (tmp_path / "x").write_bytes(files.segment(ROWS, META))
    limits = resource.getrlimit(resource.RLIMIT_NOFILE)
    in_use = max(map(int, os.listdir("/proc/self/fd")))
    resource.setrlimit(resource.RLIMIT_NOFILE, (in_use + 64, limits[1]))
    try:
        seen = [see_file(tmp_path / "x", "x", "ledger") for _ in range(200)]
    finally:
        resource.setrlimit(resource.RLIMIT_NOFILE, limits)
    assert not any(each.unreadable for each in seen)


def test_an_empty_file(tmp_path: Path) -> None:
    (tmp_path / "x").touch()
    assert see_file(tmp_path / "x", "ledger/x", "ledger").bytes == 0


@pytest.mark.parametrize(
    "data",
    [
        b"",
        b"{}",
        b"[]",
        b"7",
        b'{"body":{},"digest":7}\n',
        b'{"body":{"a":NaN},"digest":""}',
        b"\xff",
        b"[" * 100_000,
    ],
)
def test_bytes_that_are_not_sealed(data: bytes) -> None:
    with pytest.raises(FormatError):
        unseal(data)


def test_a_sealed_list_is_no_sealed_file() -> None:
    body: Any = [1]
    with pytest.raises(FormatError, match="does not match its own digest"):
        unseal(files.seal(body)[0])


@settings(max_examples=50, deadline=None)
@given(
    st.dictionaries(
        st.text(), st.none() | st.integers() | st.lists(st.text(max_size=5), max_size=3), max_size=5
    )
)
def test_what_was_sealed_is_read(body: dict[str, Any]) -> None:
    data, digest = files.seal(body)
    assert unseal(data) == (body, digest)
    assert canonical(body) == files.canonical(body)


@dataclass(frozen=True)
class Inner:
    name: str


@dataclass(frozen=True)
class Outer:
    number: float
    inner: Inner | None
    many: tuple[Inner, ...] = ()


def test_decoding() -> None:
    value = {"number": 3, "inner": {"name": "a", "further": 1}, "many": [{"name": "b"}], "further": 2}
    assert decode(Outer, value) == Outer(3, Inner("a"), (Inner("b"),))
    assert decode(Outer, {"number": 0.5, "inner": None}) == Outer(0.5, None)


@pytest.mark.parametrize(
    ("value", "words"),
    [
        (3, "entry is no object"),
        ({}, "entry lacks inner, number"),
        ({"number": "3", "inner": None}, "number is '3', not float"),
        ({"number": 1, "inner": {"name": 3}}, "name is 3, not str"),
        ({"number": 1, "inner": None, "many": 3}, "many is no list"),
        ({"number": -(1 << 64), "inner": None}, "number is out of range"),
    ],
)
def test_what_does_not_decode(value: Any, words: str) -> None:
    with pytest.raises(FormatError) as caught:
        decode(Outer, value, "entry")
    assert str(caught.value) == words


def test_digests_of_the_formats() -> None:
    # XXH3-128 of nothing, from the xxHash specification's test vectors
    assert bulk_digest(b"") == "xxh3-128:99aa06d3014798d86001c324468d497f"
    tensors = {"model/b": "y", "model/a": "x", "optimizer/a/m": "z"}
    assert part_digest("model", tensors, None) == bulk_digest(b"model/a\0x\nmodel/b\0y\n")
    assert part_digest("optimizer", tensors, "{}") == bulk_digest(b"optimizer/a/m\0z\njson\0{}")
    assert part_digest("scheduler", tensors, "null") == bulk_digest(b"json\0null")


def test_content_digests_of_rows() -> None:
    columns = {
        "b": np.arange(6, dtype=np.int16).reshape(3, 2), "a": np.array([1.5, -2, 0]), "c": np.arange(3, dtype=np.uint8),
    }  # fmt: skip
    table = pa.table({
        "b": pa.FixedSizeListArray.from_arrays(pa.array(columns["b"].reshape(-1)), 2),
        "c": pa.chunked_array([pa.array(columns["c"][:1]), pa.array(columns["c"][1:])]),
        "a": pa.array(columns["a"]),
    })  # fmt: skip
    assert row_digests(table).tolist() == files.contents(columns).tolist()
    nested = pa.FixedSizeListArray.from_arrays(table["b"].chunk(0), 1)
    assert row_digests(pa.table({"b": nested})).tolist() == files.contents({"b": columns["b"]}).tolist()
    assert row_digests(table.slice(1, 2)).tolist() == files.contents(columns).tolist()[1:]


def test_rows_without_values_have_no_digest() -> None:
    with pytest.raises(FormatError, match="without any value"):
        row_digests(pa.table({"a": pa.array([[], []], pa.list_(pa.int8(), 0))}))
    assert row_digests(pa.table({"a": pa.array([], pa.int8())})).tolist() == []


def test_chains_are_a_sequence_of_texts() -> None:
    chains, texts = Chains(), [f"{n:064x}" for n in range(5)]
    for text in texts:
        chains.append(text)
    assert list(chains) == texts
    assert (chains[-1], chains[1:-1], chains[::-2]) == (texts[-1], texts[1:-1], texts[::-2])
    with pytest.raises(IndexError):
        chains[5]


def test_a_stored_segment_has_the_columns_of_a_ledger_and_no_others(tmp_path: Path) -> None:
    path = tmp_path / "s.arrow"
    path.write_bytes(files.segment(ROWS, META))
    segment = see_file(path, "ledger/s.arrow", "ledger").segment
    assert segment is not None
    assert segment.sample_id.tolist() == [3, 1, 0, 2]
    assert not hasattr(segment, "loss")
