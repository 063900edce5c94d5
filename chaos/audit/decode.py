"""Decoded JSON → frozen dataclasses, each field of exactly its annotated type, so that no check meets a bad one.

Fields that a class does not name are ignored: a later version may say more.
"""

from __future__ import annotations

import dataclasses
import types
import typing
from collections.abc import Callable, Mapping
from functools import cache
from typing import Any, TypeVar

from chaos.audit.formats import FormatError

T = TypeVar("T")
_Reader = Callable[[object, str], Any]
_LIMIT = 1 << 64  # beyond every number in the formats; keeps arithmetic within what NumPy compares


def decode(kind: Callable[..., T], value: object, where: str = "") -> T:
    """`value` as a `kind`, a dataclass. Raises FormatError naming the field."""
    result: T = _reader(kind)(value, where)
    return result


@cache
def _reader(kind: Any) -> _Reader:
    if dataclasses.is_dataclass(kind):
        return _object_reader(kind)
    origin, arguments = typing.get_origin(kind), typing.get_args(kind)
    if origin is types.UnionType:
        inner = _reader(arguments[0])
        return lambda value, where: None if value is None else inner(value, where)
    if origin is tuple:
        return _sequence_reader(_reader(arguments[0]))
    if origin is not None:  # Mapping[str, …]
        return _mapping_reader(_reader(arguments[1]))
    return _scalar_reader(kind)


def _object_reader(kind: Any) -> _Reader:
    hints = typing.get_type_hints(kind)
    fields = [field for field in dataclasses.fields(kind) if field.init]
    required = frozenset(field.name for field in fields if field.default is dataclasses.MISSING)
    readers = {field.name: _reader(hints[field.name]) for field in fields}

    def read(value: object, where: str) -> Any:
        if not isinstance(value, dict):
            raise FormatError(f"{where} is no object")
        if missing := required - value.keys():
            raise FormatError(f"{where} lacks {', '.join(sorted(missing))}".strip())
        return kind(**{name: reader(value[name], name) for name, reader in readers.items() if name in value})

    return read


def _sequence_reader(inner: _Reader) -> _Reader:
    def read(value: object, where: str) -> tuple[Any, ...]:
        if not isinstance(value, list):
            raise FormatError(f"{where} is no list")
        return tuple(inner(item, where) for item in value)

    return read


def _mapping_reader(inner: _Reader) -> _Reader:
    def read(value: object, where: str) -> Mapping[str, Any]:
        if not isinstance(value, dict):
            raise FormatError(f"{where} is no object")
        return {key: inner(item, f"{where}.{key}") for key, item in value.items()}

    return read


def _scalar_reader(kind: type) -> _Reader:
    accepted = (int, float) if kind is float else (kind,)

    def read(value: object, where: str) -> Any:
        if type(value) not in accepted:
            raise FormatError(f"{where} is {value!r:.60}, not {kind.__name__}")
        if isinstance(value, int) and not -_LIMIT < value < _LIMIT:
            raise FormatError(f"{where} is out of range")
        return value

    return read
