from __future__ import annotations

import struct
from typing import Any

import numpy as np
import numpy.typing as npt
import pytest
import xxhash
from hypothesis import given
from hypothesis import strategies as st

from storage.digests import BulkDigest, bulk_digest, part_digest, sample_content_digests


def test_the_published_value_of_no_bytes() -> None:
    assert bulk_digest() == "xxh3-128:99aa06d3014798d86001c324468d497f"
    assert bulk_digest(b"") == bulk_digest(np.zeros((0, 3))) == bulk_digest()


@given(st.lists(st.binary(max_size=600), max_size=6))
def test_boundaries_do_not_matter(pieces: list[bytes]) -> None:
    grown = BulkDigest()
    for piece in pieces:
        grown.update(memoryview(piece))
    assert grown.digest() == bulk_digest(b"".join(pieces)) == bulk_digest(*pieces)


def test_arrays_count_as_their_bytes() -> None:
    array = np.arange(12, dtype=np.float32).reshape(3, 4)
    assert bulk_digest(array) == bulk_digest(array.tobytes())


def test_part_digest_is_as_described() -> None:
    text = "a\0xxh3-128:1\nb\0xxh3-128:2\njson\0{}"
    assert part_digest({"b": "xxh3-128:2", "a": "xxh3-128:1"}, "{}") == bulk_digest(text.encode())
    assert part_digest({}, "null") == bulk_digest(b"json\0null")
    assert part_digest({}) != part_digest({}, "")


def test_sample_content_is_each_rows_bytes_in_alphabetical_order() -> None:
    columns: dict[str, npt.NDArray[Any]] = {
        "y": np.array([1, -2], dtype=np.int32),
        "x": np.array([[0.5, 1.5], [2.5, -0.0]], dtype=">f4"),
    }
    expected = [
        xxhash.xxh3_64_intdigest(struct.pack("<ffi", *row)) for row in [(0.5, 1.5, 1), (2.5, -0.0, -2)]
    ]
    result = sample_content_digests(columns)
    assert result.dtype == np.uint64
    assert result.tolist() == expected


def test_sample_content_of_strided_columns_and_of_no_rows() -> None:
    wide = np.arange(20, dtype=np.int64).reshape(5, 4)
    assert (
        sample_content_digests({"a": wide[:, ::2]}) == sample_content_digests({"a": wide[:, ::2].copy()})
    ).all()
    assert sample_content_digests({"a": wide[:0]}).shape == (0,)


@pytest.mark.parametrize(
    ("columns", "message"),
    [
        ({}, "at least one"),
        ({"a": np.array(["x"])}, "only integers and floats"),
        ({"a": np.array([True])}, "only integers and floats"),
        ({"a": np.zeros(2), "b": np.zeros(3)}, "3 rows"),
        ({"a": np.zeros((2, 0))}, "length 0"),
    ],
)
def test_what_cannot_be_digested_is_refused(columns: dict[str, npt.NDArray[Any]], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        sample_content_digests(columns)
