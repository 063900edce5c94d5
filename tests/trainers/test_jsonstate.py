"""State as JSON text and back, exactly; what cannot be kept is refused by name."""

from __future__ import annotations

import json
import math
import struct
from collections import Counter, OrderedDict, defaultdict
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from trainers.errors import StateError
from trainers.jsonstate import decode, encode, like

KEYS = st.one_of(st.text(max_size=5), st.integers(), st.booleans(), st.tuples(st.integers(), st.text(max_size=3)))
VALUES = st.recursive(
    st.one_of(
        st.none(), st.booleans(), st.integers(), st.text(max_size=8), st.binary(max_size=8), st.floats(allow_nan=False)
    ),
    lambda inner: st.one_of(
        st.lists(inner, max_size=4), st.lists(inner, max_size=4).map(tuple), st.dictionaries(KEYS, inner, max_size=4)
    ),
    max_leaves=20,
)


def _same(a: Any, b: Any) -> bool:
    """Equal in value and type, all the way down; 1, 1.0 and True are three things, 0.0 and -0.0 are two."""
    if type(a) is not type(b):
        return False
    if isinstance(a, float):
        return struct.pack("<d", a) == struct.pack("<d", b)
    if isinstance(a, dict):
        pairs = zip(a.items(), b.items(), strict=True) if len(a) == len(b) else [((0, 0), (1, 1))]
        return all(_same(x, y) for x, y in pairs)
    if isinstance(a, (list, tuple)):
        return len(a) == len(b) and all(_same(x, y) for x, y in zip(a, b, strict=True))
    return bool(a == b)


def _sorted(value: Any) -> Any:
    """Dictionaries with keys that are all strings come back in their keys' order."""
    if isinstance(value, dict):
        plain = all(isinstance(key, str) and key != "~" for key in value)
        items = sorted(value.items()) if plain else value.items()
        return {key: _sorted(item) for key, item in items}
    return type(value)(_sorted(item) for item in value) if isinstance(value, (list, tuple)) else value


@given(VALUES)
def test_what_goes_in_comes_out(value: Any) -> None:
    text = encode(value, "x")
    assert _same(decode(text, "x"), _sorted(value))
    assert encode(decode(text, "x"), "x") == text
    json.loads(text, parse_constant=lambda name: pytest.fail(f"{name} is not JSON"))


@given(VALUES, VALUES)
def test_the_live_object_changes_no_value(value: Any, live: Any) -> None:
    assert _same(like(value, live), value)


@pytest.mark.parametrize(
    ("live", "value"),
    [
        (Counter({1: 9}), {2: 1, 3: 0}),
        (OrderedDict(a=1), {"b": 1}),
        (defaultdict(list, a=[1]), {"b": [2]}),
        ({"deep": [Counter("x"), {"er": Counter()}]}, {"deep": [{"y": 2}, {"er": {"z": 1}}]}),
    ],
)
def test_the_kind_of_a_dictionary_is_that_of_the_live_object(live: Any, value: Any) -> None:
    before = repr(live)
    made = like(decode(encode(value, "x"), "x"), live)
    assert made == value
    assert repr(live) == before
    kinds = [type(made), type(made["deep"][0]), type(made["deep"][1]["er"])] if "deep" in made else [type(made)]
    assert kinds == ([dict, Counter, Counter] if "deep" in made else [type(live)])
    if isinstance(made, defaultdict):
        assert made["new"] == []


def test_what_was_saved_decides_where_there_is_no_such_dictionary() -> None:
    for live in (None, 3, [Counter()], {"a": 1}):
        assert like({"a": {"b": 1}}, live) == {"a": {"b": 1}}


@pytest.mark.parametrize("value", [math.inf, -math.inf, -0.0, 5e-324, 1e308, 0.1])
def test_special_floats(value: float) -> None:
    assert _same(decode(encode(value, "x"), "x"), value)


def test_nan_stays_nan() -> None:
    assert math.isnan(decode(encode(math.nan, "x"), "x"))


def test_equal_dictionaries_give_equal_text() -> None:
    assert encode({"a": 1, "b": 2}, "x") == encode({"b": 2, "a": 1}, "x")


def test_a_key_that_looks_like_a_tag_survives() -> None:
    for value in ({"~": "f", "v": "0x1p+0"}, {"~": 1}, {"a": {"~": "t", "v": []}}):
        assert decode(encode(value, "x"), "x") == value


@pytest.mark.parametrize(
    "tensor",
    [
        torch.tensor(3.5), torch.tensor([1, 2], dtype=torch.int8), torch.zeros(2, 0), torch.tensor([[True], [False]]),
        torch.tensor([math.inf, -0.0], dtype=torch.bfloat16), torch.tensor([0.1], dtype=torch.float64),
    ],
)  # fmt: skip
def test_small_tensors(tensor: torch.Tensor) -> None:
    back = decode(encode({"t": tensor}, "x"), "x")["t"]
    assert back.dtype == tensor.dtype
    assert back.shape == tensor.shape
    assert torch.equal(back, tensor)


def test_numpy_scalars_become_numbers() -> None:
    assert decode(encode([np.float32(0.5), np.int64(3), np.bool_(True)], "x"), "x") == [0.5, 3, True]


@pytest.mark.parametrize(
    ("value", "where", "kind"),
    [
        ({"a": [0, {"b": object()}]}, r"part\.a\[1\]\.b", "object"),
        ((1, {2}), r"part\[1\]", "set"),
        ({"lambda": print}, r"part\.lambda", "builtin_function_or_method"),
        ({1: {"deep": 1j}}, r"part\.1\.deep", "complex"),
        ([torch.zeros(65)], r"part\[0\]", "Tensor"),
        ({"n": np.zeros(2)}, r"part\.n", "ndarray"),
    ],
)
def test_a_refusal_names_the_place_and_the_type(value: Any, where: str, kind: str) -> None:
    with pytest.raises(StateError, match=f"^{where} is a {kind}: .*without pickle"):
        encode(value, "part")


@pytest.mark.parametrize(
    "text", ["", "{", '{"~":"?","v":1}', '{"~":"f","v":"x"}', '{"~":"f"}', '{"~":"b","v":"0"}', '{"~":"t","v":3}',
             '{"~":"d","v":[[[],1]]}', '{"~":"d","v":[1]}']
)
def test_text_that_was_not_written_here_is_refused(text: str) -> None:
    with pytest.raises(StateError, match=r"^rng: the stored state is not what was written"):
        decode(text, "rng")
