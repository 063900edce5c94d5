"""Sealed JSON, digests and names, beside a second writing of them, and on bytes that are not what they should be."""

from __future__ import annotations

import fcntl
import io
import json
import os
import stat
from pathlib import Path
from typing import Any, cast

import audit_files as files
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from chaos.audit.formats import (
    TENSOR_PREFIX,
    FormatError,
    _short,
    bulk_digest,
    canonical,
    checkpoint_name,
    file_path,
    is_shared,
    microbatch_of,
    open_regular,
    part_digest,
    read_regular,
    require_regular,
    sha256_text,
    unseal,
)

# -- files


def test_a_regular_file_is_read_whole(tmp_path: Path) -> None:
    for data in (b"", b"some bytes", bytes(range(256)) * 5):
        (tmp_path / "f").write_bytes(data)
        assert read_regular(tmp_path / "f") == data
        with open_regular(tmp_path / "f") as file:
            assert file.read() == data
        assert file.closed


def test_no_open_waits_for_a_writer_or_is_inherited_and_it_reads_a_megabyte_at_a_time(tmp_path: Path) -> None:
    (tmp_path / "f").write_bytes(bytes((1 << 20) + 1))
    with open_regular(tmp_path / "f") as file:
        assert fcntl.fcntl(file.fileno(), fcntl.F_GETFL) & os.O_NONBLOCK
        assert not os.get_inheritable(file.fileno())
        assert len(cast(io.BufferedReader, file).peek()) == 1 << 20


def test_what_is_no_regular_file_is_not_read(tmp_path: Path) -> None:
    with pytest.raises(FormatError, match=r"^is no regular file$"):
        read_regular(Path(os.devnull))
    with pytest.raises(OSError, match="directory"):
        read_regular(tmp_path)
    with pytest.raises(FileNotFoundError):
        read_regular(tmp_path / "nowhere")


def test_only_the_status_of_a_regular_file_is_one() -> None:
    def status(mode: int) -> os.stat_result:
        return os.stat_result((mode, *[0] * 9))

    require_regular(status(stat.S_IFREG | 0o644))
    for mode in (stat.S_IFDIR, stat.S_IFIFO, stat.S_IFCHR, stat.S_IFSOCK):
        with pytest.raises(FormatError, match="is no regular file"):
            require_regular(status(mode))


# -- sealed JSON


def test_the_one_encoding_of_a_value() -> None:
    assert canonical({"b": [1, 2.5, None, True], "a": "é\n", "c": {"z": 1, "y": 2}}) == (
        b'{"a":"\\u00e9\\n","b":[1,2.5,null,true],"c":{"y":2,"z":1}}'
    )
    for number in (float("nan"), float("inf")):
        with pytest.raises(ValueError, match="JSON"):
            canonical(number)


def test_known_digests() -> None:
    assert sha256_text(b"") == "sha256:e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855"
    assert bulk_digest() == "xxh3-128:99aa06d3014798d86001c324468d497f"
    assert bulk_digest(b"ab", memoryview(b"c")) == bulk_digest(b"abc") == files.bulk(b"abc")


_JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False, allow_infinity=False) | st.text(max_size=4),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=3), inner, max_size=3),
    max_leaves=8,
)


@settings(max_examples=50, deadline=None)
@given(st.dictionaries(st.text(max_size=3), _JSON, max_size=4))
def test_a_sealed_body_is_opened_as_it_was(body: dict[str, Any]) -> None:
    data, digest = files.seal(body)
    assert unseal(data) == (body, digest)
    for changed in (data[:-1], data + b"\n", data.replace(b'"body":', b'"body": ', 1)):
        with pytest.raises(FormatError, match="does not match its own digest"):
            unseal(changed)


@settings(max_examples=50, deadline=None)
@given(st.integers(0, 200), st.integers(1, 255))
def test_no_changed_byte_of_a_sealed_file_is_believed(at: int, by: int) -> None:
    data = bytearray(files.seal({"a": [1, "x"], "b": None})[0])
    data[at % len(data)] ^= by
    with pytest.raises(FormatError):
        unseal(bytes(data))


@pytest.mark.parametrize("body", [[1], "text", 1, None])
def test_only_an_object_is_a_body(body: Any) -> None:
    text = canonical(body)
    data = b'{"body":%b,"digest":"%b"}\n' % (text, sha256_text(text).encode())
    with pytest.raises(FormatError, match="does not match its own digest: bytes were changed after it was sealed"):
        unseal(data)


@pytest.mark.parametrize(
    ("data", "why"),
    [
        (b"", "JSONDecodeError"), (b"{", "JSONDecodeError"), (b"\xff", "UnicodeDecodeError"),
        (b"{}", "KeyError: 'body'"),
        (b"[]", "TypeError"), (b"1", "TypeError"), (b'{"body":NaN}', "ValueError"),
        (b"[" * 100_000, "RecursionError"),
    ],
)  # fmt: skip
def test_what_is_no_sealed_file(data: bytes, why: str) -> None:
    with pytest.raises(FormatError, match=r"^is no sealed file") as raised:
        unseal(data)
    assert str(raised.value).startswith(f"is no sealed file ({len(data)} bytes: {why}")


def test_reasons_are_cut_off() -> None:
    assert _short(KeyError("body")) == "KeyError: 'body'"
    assert _short(ValueError("x" * 108)) == f"ValueError: {'x' * 108}"
    assert _short(ValueError("x" * 109)) == f"ValueError: {'x' * 108}"


# -- parts of a state


def test_which_tensors_all_ranks_share() -> None:
    shared = ("model/w", "optimizer/w/step", "best/w")
    local = ("buffer/n", "rng/torch", "gradient/w", "accumulation/ids", "best_buffer/n", "x/model/w", "model", "")
    assert [is_shared(name) for name in (*shared, *local)] == [True] * 3 + [False] * 8


_TENSORS = st.sampled_from([f"{prefix}{name}" for prefix in ("model/", "best/", "best_buffer/", "buffer/", "rng/torch",
                                                             "rng/cuda", "optimizer/") for name in ("", "a", "é")])


@settings(max_examples=50, deadline=None)
@given(
    st.sampled_from([*TENSOR_PREFIX, "scheduler", "progress"]),
    st.dictionaries(_TENSORS, st.sampled_from(["d1", "d2"]), max_size=6),
    st.sampled_from([None, "", "null", '{"é":1}']),
)
def test_a_part_is_its_tensors_by_name_and_its_text(part: str, tensors: dict[str, str], text: str | None) -> None:
    assert part_digest(part, tensors, text) == files.part(tensors, TENSOR_PREFIX.get(part), text)
    turned = dict(reversed(tensors.items()))
    assert part_digest(part, turned, text) == part_digest(part, tensors, text)


def test_a_part_without_a_text_is_another_than_one_with_an_empty_one() -> None:
    assert part_digest("scheduler", {}, None) == bulk_digest()
    assert part_digest("scheduler", {}, "") == bulk_digest(b"json\0")
    assert part_digest("scheduler", {"scheduler/a": "d"}, "") == bulk_digest(b"json\0")
    assert part_digest("model", {"model/b": "2", "model/a": "1", "n": "3"}, "t") == (
        bulk_digest(b"model/a\x001\nmodel/b\x002\njson\0t")
    )


# -- names


@pytest.mark.parametrize(
    ("moment", "name"),
    [
        ((7, 3), "s00000007-a0003"), ((7, 3, 0), "s00000007-a0003"), ((7, 3, 1), "s00000007-m0001-a0003"),
        ((0, 0), "s00000000-a0000"), ((123456789, 12345, 67890), "s123456789-m67890-a12345"),
    ],
)  # fmt: skip
def test_names_of_checkpoints(moment: tuple[int, ...], name: str) -> None:
    assert checkpoint_name(*moment) == name


@settings(max_examples=50, deadline=None)
@given(st.integers(0, 10**9), st.integers(0, 10**5), st.integers(0, 10**5))
def test_a_name_says_how_many_microbatches_it_holds(step: int, attempt: int, microbatch: int) -> None:
    assert microbatch_of(checkpoint_name(step, attempt, microbatch)) == microbatch


@pytest.mark.parametrize("name", ["", "s00000007", "s00000007-m3-a0000", "x00000007-m0003-a0000",
                                  "s00000007-m0003-a0000-r0001", "s0000007-m0003-a0000"])  # fmt: skip
def test_what_is_no_name_holds_no_microbatch(name: str) -> None:
    assert microbatch_of(name) == 0


def test_files_of_a_rank() -> None:
    assert file_path("shard", "s00000007-a0003", 2) == "shards/s00000007-a0003-r0002.safetensors"
    assert file_path("ledger", "s00000007-a0003", 12345) == "ledger/s00000007-a0003-r12345.arrow"


def test_an_error_is_told_by_its_kind_and_the_reason_stays_with_it() -> None:
    with pytest.raises(FormatError) as raised:
        unseal(b"{")
    assert isinstance(raised.value.__cause__, json.JSONDecodeError)
