from __future__ import annotations

import json
import struct
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import pytest
from hypothesis import given
from hypothesis import strategies as st
from safetensors.numpy import load, save
from storage_kit import Killed, Points, kill_at

import storage.shard
from storage.digests import bulk_digest
from storage.errors import Abandoned, AlreadyExists, Damaged, NotThere, Unavailable
from storage.manifest import FileRecord
from storage.objects import LocalObjects
from storage.shard import (
    DTYPE_BYTES,
    TensorSpec,
    Written,
    parse_shard,
    read_verified,
    shard_header,
    write_ledger,
    write_shard,
)

NAME = "shards/s00000007-a0000-r0000.safetensors"
SPECS = [TensorSpec("optimizer/w/step", "I64", (), 8), TensorSpec("model/w", "F32", (2, 3), 24),
         TensorSpec("model/none", "F32", (0, 3), 0), TensorSpec("rng/torch", "U8", (5,), 5)]  # fmt: skip
DATA = bytes(range(37))
METADATA = {"format": "killpoint.shard/1", "part.scheduler": '{"a": "é\\n"}'}
HEADER = shard_header(SPECS, METADATA)


def record(written: Written) -> FileRecord:
    return FileRecord(written.path, "shard", 0, written.bytes, written.digest)


def test_the_safetensors_library_reads_it(tmp_path: Path) -> None:
    from safetensors import safe_open

    path = tmp_path / "a.safetensors"
    path.write_bytes(HEADER + DATA)
    tensors = load(HEADER + DATA)
    assert {name: tensor.shape for name, tensor in tensors.items()} == {s.name: s.shape for s in SPECS}
    assert tensors["model/w"].tobytes() == DATA[8:32]
    with safe_open(path, "numpy") as file:
        assert file.metadata() == METADATA
    assert len(HEADER) % 8 == 0


def test_it_reads_what_the_safetensors_library_writes() -> None:
    arrays: dict[str, npt.NDArray[Any]] = {
        "a": np.arange(6, dtype=np.int16).reshape(2, 3),
        "b": np.zeros((0, 4)),
        "c": np.ones((), np.float64),
    }
    shard = parse_shard(save(arrays, {"k": "v"}), "x")
    assert dict(shard.metadata) == {"k": "v"}
    assert {name: (view.shape, bytes(view.data)) for name, view in shard.tensors.items()} == {
        name: (array.shape, array.tobytes()) for name, array in arrays.items()
    }


@given(
    st.lists(
        st.tuples(st.sampled_from(sorted(DTYPE_BYTES)), st.lists(st.integers(0, 4), max_size=3)), max_size=5
    )
)
def test_roundtrip(tensors: list[tuple[str, list[int]]]) -> None:
    specs = [
        TensorSpec(f"t{i}", dtype, tuple(shape), int(np.prod(shape)) * DTYPE_BYTES[dtype])
        for i, (dtype, shape) in enumerate(tensors)
    ]
    data = np.random.default_rng(1).bytes(sum(spec.bytes for spec in specs))
    shard = parse_shard(shard_header(specs, {"a": "b"}) + data, "x")
    assert [(name, view.dtype, view.shape) for name, view in shard.tensors.items()] == [
        (spec.name, spec.dtype, spec.shape) for spec in specs
    ]
    assert b"".join(view.data for view in shard.tensors.values()) == data


@pytest.mark.parametrize(
    "specs",
    [
        [SPECS[0], SPECS[0]],
        [TensorSpec("__metadata__", "U8", (1,), 1)],
        [TensorSpec("a", "F128", (1,), 16)],
        [TensorSpec("a", "F32", (2,), 4)],
    ],
)
def test_a_header_that_would_lie_is_refused(specs: list[TensorSpec]) -> None:
    with pytest.raises(ValueError, match=r"twice|unknown type"):
        shard_header(specs, {})


def test_what_is_written_is_what_was_handed_over(objects: LocalObjects) -> None:
    points = Points()
    written = write_shard(objects, NAME, HEADER, memoryview(DATA), points)
    assert points.passed == ["shard.opened", "shard.half", "shard.written", "shard.data_synced", "shard.synced"]
    assert objects.read(NAME) == HEADER + DATA == read_verified(objects, record(written))
    assert written == Written(NAME, len(HEADER + DATA), bulk_digest(HEADER + DATA))
    with pytest.raises(AlreadyExists):
        write_shard(objects, NAME, HEADER, memoryview(DATA))


def test_a_ledger_is_written_alike(objects: LocalObjects) -> None:
    points = Points()
    written = write_ledger(objects, "ledger/a.arrow", DATA, points)
    assert points.passed == ["ledger.opened", "ledger.written", "ledger.data_synced", "ledger.synced"]
    assert written == Written("ledger/a.arrow", len(DATA), bulk_digest(DATA))
    assert objects.read("ledger/a.arrow") == DATA


def test_is_durable_once_synced_is_passed(objects: LocalObjects, monkeypatch: pytest.MonkeyPatch) -> None:
    points = Points()
    monkeypatch.setattr("storage.objects._LocalBulkWriter.sync", lambda self, reached: points("sync"))
    write_shard(objects, NAME, HEADER, memoryview(DATA), points)
    assert points.passed[-3:] == ["shard.written", "sync", "shard.synced"]
    write_ledger(objects, "ledger/a.arrow", DATA, points)
    assert points.passed[-3:] == ["ledger.written", "sync", "ledger.synced"]


def test_data_of_any_shape_and_of_none(objects: LocalObjects) -> None:
    array = np.arange(6, dtype=np.float32).reshape(2, 3)
    write_shard(objects, "shards/a", HEADER, array.data)
    assert objects.read("shards/a") == HEADER + array.tobytes()
    write_shard(objects, "shards/b", HEADER, np.zeros((0, 3)).data)
    assert objects.read("shards/b") == HEADER


@pytest.mark.parametrize(
    ("point", "bytes_there"), [("opened", 0), ("half", len(HEADER) + 18), ("written", -1)]
)
def test_killed_midway_leaves_a_part_that_does_not_verify(
    objects: LocalObjects, point: str, bytes_there: int
) -> None:
    with pytest.raises(Killed):
        write_shard(objects, NAME, HEADER, memoryview(DATA), kill_at(f"shard.{point}"))
    whole = HEADER + DATA
    assert objects.read(NAME) == (whole if bytes_there < 0 else whole[:bytes_there])


def test_large_data_is_never_copied(objects: LocalObjects, monkeypatch: pytest.MonkeyPatch) -> None:
    array = np.zeros(9 << 20, dtype=np.uint8)
    seen: list[Any] = []
    monkeypatch.setattr("storage.objects._LocalBulkWriter.write", lambda self, piece: seen.append(piece))
    write_shard(objects, NAME, HEADER, array.data)
    assert all(isinstance(piece, memoryview) for piece in seen)
    assert sum(np.shares_memory(np.frombuffer(piece, np.uint8), array) for piece in seen) == len(seen) - 1
    assert max(map(len, seen)) <= 4 << 20


def test_a_cancelled_write_stops_between_slices(objects: LocalObjects) -> None:
    asked: list[None] = []

    def cancelled() -> bool:
        asked.append(None)
        return len(asked) > 3

    with pytest.raises(Abandoned) as caught:
        write_shard(objects, NAME, HEADER, memoryview(bytes(40 << 20)), cancelled=cancelled)
    assert (caught.value.where, caught.value.point) == (NAME, "shard.opened")
    assert objects.size(NAME) == len(HEADER) + (8 << 20)
    with pytest.raises(Abandoned):
        write_ledger(objects, "ledger/a", DATA, cancelled=lambda: True)


def test_every_cut_and_every_flipped_bit_is_found_by_the_digest(objects: LocalObjects) -> None:
    verified = record(write_shard(objects, NAME, HEADER, memoryview(DATA)))
    whole = HEADER + DATA
    path = objects.path(NAME)
    for at in range(len(whole)):
        path.write_bytes(whole[:at])
        with pytest.raises(Damaged, match=f"has {at} bytes"):
            read_verified(objects, verified)
        path.write_bytes(whole[:at] + bytes([whole[at] ^ (1 << at % 8)]) + whole[at + 1 :])
        with pytest.raises(Damaged, match="has digest"):
            read_verified(objects, verified)
    path.write_bytes(whole + b"\0")
    with pytest.raises(Damaged, match="bytes"):
        read_verified(objects, verified)
    path.unlink()
    with pytest.raises(NotThere):
        read_verified(objects, verified)


def test_a_hiccup_is_not_damage(objects: LocalObjects, monkeypatch: pytest.MonkeyPatch) -> None:
    verified = record(write_shard(objects, NAME, HEADER, memoryview(DATA)))

    def failing(*args: object, **kwargs: object) -> object:
        raise OSError(5, "Input/output error")

    monkeypatch.setattr("builtins.open", failing)
    with pytest.raises(Unavailable):
        read_verified(objects, verified)


def test_every_cut_is_damaged() -> None:
    whole = HEADER + DATA
    for length in range(len(whole)):
        with pytest.raises(Damaged, match=r"^x: "):
            parse_shard(whole[:length], "x")


def test_no_flipped_bit_makes_the_parser_fail_otherwise() -> None:
    whole = HEADER + DATA
    for at in range(len(HEADER)):
        for bit in range(8):
            changed = bytearray(whole)
            changed[at] ^= 1 << bit
            try:
                shard = parse_shard(bytes(changed), "x")
            except Damaged:
                continue
            assert sum(len(view.data) for view in shard.tensors.values()) == len(DATA)


def made(header: Any, data: bytes = b"") -> bytes:
    text = header if isinstance(header, bytes) else json.dumps(header).encode()
    return struct.pack("<Q", len(text)) + text + data


def tensor(dtype: Any = "U8", shape: Any = (4,), offsets: Any = (0, 4)) -> dict[str, Any]:
    return {"dtype": dtype, "shape": shape, "data_offsets": offsets}


@pytest.mark.parametrize(
    ("data", "message"),
    [
        (b"", "cut off"),
        (struct.pack("<Q", 1 << 63), "cut off"),
        (made(b"{"), "not JSON"),
        (made(b"\xff"), "not JSON"),
        (made(b"[" * 10_000), "not JSON"),
        (made([]), "not a JSON object"),
        (made(b" {}"), "not a JSON object"),
        (made(b'{"a":1,"a":2}'), "twice"),
        (made({"__metadata__": {"a": 1}}), "__metadata__"),
        (made({"__metadata__": []}), "__metadata__"),
        (made({"a": 1}), "must have dtype"),
        (made({"a": {**tensor(), "x": 1}}, bytes(4)), "must have dtype"),
        (made({"a": tensor(dtype="X")}, bytes(4)), "unknown type"),
        (made({"a": tensor(dtype=[])}, bytes(4)), "unknown type"),
        (made({"a": tensor(shape=[-4])}, bytes(4)), "integers from 0"),
        (made({"a": tensor(shape=[True])}, bytes(4)), "integers from 0"),
        (made({"a": tensor(shape=4)}, bytes(4)), "integers from 0"),
        (made({"a": tensor(offsets=[4])}, bytes(4)), "integers from 0"),
        (made({"a": tensor(offsets=[0, 4.0])}, bytes(4)), "integers from 0"),
        (made({"a": tensor(shape=[3])}, bytes(4)), "do not fit"),
        (made({"a": tensor(shape=[4, 1 << 70])}, bytes(4)), "do not fit"),
        (made({"a": tensor(offsets=[4, 0])}, bytes(4)), "do not fit"),
        (made({"a": tensor()}, bytes(5)), "the data at 5"),
        (made({"a": tensor()}, bytes(3)), "the data at 3"),
        (made({"a": tensor(offsets=[1, 5])}, bytes(5)), "begins at 1"),
        (made({"a": tensor(), "b": tensor()}, bytes(4)), "begins at 0"),
        (made({"a": tensor(), "b": tensor(offsets=[5, 9])}, bytes(9)), "begins at 5"),
    ],
)
def test_another_form_is_damaged(data: bytes, message: str) -> None:
    with pytest.raises(Damaged, match=message):
        parse_shard(data, "x")


def test_views_lie_in_the_bytes_that_were_read() -> None:
    whole = HEADER + DATA
    shard = parse_shard(whole, "x")
    for view in shard.tensors.values():
        assert view.data.obj is whole
        assert view.data.readonly
    writable = parse_shard(bytearray(whole), "x").tensors["model/w"].data
    assert not writable.readonly
    assert writable == DATA[8:32]


def test_the_digest_is_of_the_memory_not_of_the_disk(
    objects: LocalObjects, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("storage.objects._write_all", lambda fd, view: None)
    written = write_shard(objects, NAME, HEADER, memoryview(DATA))
    assert written.digest == bulk_digest(HEADER + DATA)
    with pytest.raises(Damaged):
        read_verified(objects, record(written))
    assert storage.shard.FORMAT == "killpoint.shard/1"
