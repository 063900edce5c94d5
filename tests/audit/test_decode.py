"""Decoded JSON as dataclasses: each field of exactly its annotated type, and what is said where it is not."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from chaos.audit import decode as decode_module
from chaos.audit.decode import decode
from chaos.audit.formats import FormatError


@pytest.fixture(autouse=True)
def _readers_are_made_anew() -> Iterator[None]:
    decode_module._reader.cache_clear()
    yield
    decode_module._reader.cache_clear()


@dataclass(frozen=True)
class Inner:
    n: int
    text: str = "none"


@dataclass(frozen=True)
class Outer:
    number: int
    real: float
    word: str
    truth: bool
    maybe: int | None
    inner: Inner
    several: tuple[Inner, ...]
    named: Mapping[str, int]
    perhaps: Inner | None = None
    later: tuple[str, ...] = ()
    derived: int = field(default=5, init=False)


WHOLE: dict[str, Any] = {
    "number": 1, "real": 0.5, "word": "w", "truth": True, "maybe": 2, "inner": {"n": 3, "text": "t"},
    "several": [{"n": 4}, {"n": 5, "text": "u"}], "named": {"a": 6, "b": 7},
}  # fmt: skip
EXPECTED = Outer(1, 0.5, "w", True, 2, Inner(3, "t"), (Inner(4), Inner(5, "u")), {"a": 6, "b": 7})


def test_every_kind_of_field() -> None:
    found = decode(Outer, WHOLE)
    assert found == EXPECTED
    assert (type(found.number), type(found.several), type(found.named), type(found.inner)) == (int, tuple, dict, Inner)


def test_what_may_be_left_out_and_what_may_be_null() -> None:
    assert decode(Outer, {**WHOLE, "maybe": None}).maybe is None
    assert decode(Outer, {**WHOLE, "perhaps": None}).perhaps is None
    assert decode(Outer, {**WHOLE, "perhaps": {"n": 8}, "later": ["x", "y"]}).perhaps == Inner(8)
    assert decode(Outer, {**WHOLE, "later": ["x", "y"]}).later == ("x", "y")
    assert decode(Outer, {**WHOLE, "several": [], "named": {}}).several == ()


def test_what_no_field_names_is_ignored() -> None:
    assert decode(Outer, {**WHOLE, "more": object(), "derived": 9}) == EXPECTED


def test_a_real_number_may_be_whole_and_stays_what_it_is() -> None:
    assert type(decode(Outer, {**WHOLE, "real": 2}).real) is int


@pytest.mark.parametrize(
    ("change", "words"),
    [
        ({"number": True}, "number is True, not int"),
        ({"number": 1.0}, "number is 1.0, not int"),
        ({"number": "1"}, "number is '1', not int"),
        ({"number": None}, "number is None, not int"),
        ({"real": True}, "real is True, not float"),
        ({"real": "1"}, "real is '1', not float"),
        ({"word": 1}, "word is 1, not str"),
        ({"truth": 1}, "truth is 1, not bool"),
        ({"truth": None}, "truth is None, not bool"),
        ({"maybe": "2"}, "maybe is '2', not int"),
        ({"inner": None}, "inner is no object"),
        ({"inner": [1]}, "inner is no object"),
        ({"inner": {}}, "inner lacks n"),
        ({"inner": {"n": "x"}}, "n is 'x', not int"),
        ({"perhaps": 1}, "perhaps is no object"),
        ({"several": {"n": 4}}, "several is no list"),
        ({"several": None}, "several is no list"),
        ({"several": [{"n": 4}, 5]}, "several is no object"),
        ({"later": "xy"}, "later is no list"),
        ({"later": ["x", 1]}, "later is 1, not str"),
        ({"named": [["a", 6]]}, "named is no object"),
        ({"named": {"a": 6, "b": "7"}}, "named.b is '7', not int"),
        ({"word": ["x" * 99]}, f"word is {repr(['x' * 99])[:60]}, not str"),
    ],
)  # fmt: skip
def test_what_is_not_of_its_type(change: dict[str, Any], words: str) -> None:
    with pytest.raises(FormatError) as raised:
        decode(Outer, {**WHOLE, **change})
    assert str(raised.value) == words


def test_all_that_is_lacking_is_named() -> None:
    lacking = {key: value for key, value in WHOLE.items() if key not in ("word", "inner")}
    for where, words in (("", "lacks inner, word"), ("the body", "the body lacks inner, word")):
        with pytest.raises(FormatError) as raised:
            decode(Outer, lacking, where)
        assert str(raised.value) == words
    with pytest.raises(FormatError) as raised:
        decode(Outer, [], "the body")
    assert str(raised.value) == "the body is no object"


@pytest.mark.parametrize("name", ["number", "real", "maybe"])
def test_whole_numbers_are_below_two_to_the_64th(name: str) -> None:
    for number in ((1 << 64) - 1, 1 - (1 << 64), 1 << 63, 0):
        assert getattr(decode(Outer, {**WHOLE, name: number}), name) == number
    for number in (1 << 64, -(1 << 64), 1 << 99):
        with pytest.raises(FormatError, match=f"^{name} is out of range$"):
            decode(Outer, {**WHOLE, name: number})
    assert decode(Outer, {**WHOLE, "real": 1e300}).real == 1e300


def test_a_reader_is_made_once_for_each_kind() -> None:
    assert decode_module._reader(Outer) is decode_module._reader(Outer)


_VALUES = st.one_of(st.none(), st.booleans(), st.integers(-3, 3), st.floats(0, 1), st.text(max_size=2))


@settings(max_examples=50, deadline=None)
@given(st.dictionaries(st.sampled_from(["n", "text", "more"]), _VALUES))
def test_a_value_is_accepted_exactly_where_its_types_are_right(value: dict[str, Any]) -> None:
    right = type(value.get("n")) is int and type(value.get("text", "")) is str
    try:
        found = decode(Inner, value)
    except FormatError:
        assert not right
    else:
        assert right
        assert found == Inner(value["n"], value.get("text", "none"))
