from __future__ import annotations

import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from storage.errors import Damaged
from storage.sealed import canonical, seal, sha256_digest, unseal

JSON = st.recursive(
    st.none() | st.booleans() | st.integers(-(2**70), 2**70) | st.text()
    | st.floats(allow_nan=False, allow_infinity=False),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(), inner, max_size=3),
    max_leaves=8,
)  # fmt: skip
SMALL, SMALL_DIGEST = seal({"a": 1, "b": ["x", 2.5], "c": None})


def test_the_format_is_as_described() -> None:
    assert b'{"body":{"a":1,"b":["x",2.5],"c":null},"digest":"%b"}\n' % SMALL_DIGEST.encode() == SMALL
    assert sha256_digest(b'{"a":1,"b":["x",2.5],"c":null}') == SMALL_DIGEST


@given(st.dictionaries(st.text(), JSON, max_size=4))
def test_roundtrip(body: dict[str, Any]) -> None:
    data, digest = seal(body)
    assert unseal(data, "x") == (body, digest)


def test_every_cut_is_damaged() -> None:
    for length in range(len(SMALL)):
        with pytest.raises(Damaged):
            unseal(SMALL[:length], "x")


def test_every_flipped_bit_is_damaged() -> None:
    for at in range(len(SMALL)):
        for bit in range(8):
            changed = bytearray(SMALL)
            changed[at] ^= 1 << bit
            with pytest.raises(Damaged, match=r"^x: "):
                unseal(bytes(changed), "x")


@pytest.mark.parametrize(
    "data",
    [
        SMALL + b"\n",
        SMALL + SMALL,
        SMALL.replace(b":1,", b": 1,"),
        SMALL.replace(b'"x"', b'"\\u0078"'),
        SMALL.replace(b'"a":1', b'"a":1,"a":1'),
        b'{"digest":"%b","body":{"a":1,"b":["x",2.5],"c":null}}\n' % SMALL_DIGEST.encode(),
        json.dumps({"body": {"a": 1}}).encode(),
        canonical({"body": [], "digest": sha256_digest(b"[]")}) + b"\n",
        canonical({"body": {}, "digest": sha256_digest(b"{}"), "more": 1}) + b"\n",
        b'{"body":{"a":NaN},"digest":"x"}\n',
        b'{"body":{"a":1e999},"digest":"x"}\n',
        b"[" * 100_000,
        b"9" * 10_000,
        b"\xff\xfe",
        b"null\n",
    ],
    ids=range(15),
)
def test_other_forms_of_the_same_content_are_damaged(data: bytes) -> None:
    with pytest.raises(Damaged):
        unseal(data, "x")


def test_another_digest_is_told_apart_from_another_form() -> None:
    with pytest.raises(Damaged, match="does not match its digest"):
        unseal(SMALL.replace(b'"a":1', b'"a":2'), "x")
    with pytest.raises(Damaged, match="canonical form"):
        unseal(SMALL.replace(b":1,", b": 1,"), "x")


def test_what_json_lacks_is_refused() -> None:
    with pytest.raises(ValueError, match="JSON"):
        seal({"a": float("nan")})
