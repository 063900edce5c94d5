"""Lines that look alike, read by a pattern: canonical JSON is decoded and known to be canonical in one pass.

The histories of a long run hold millions of lines that differ in their numbers and digests only. The pattern of one of
them, made from its decoded body, accepts exactly the canonical encodings of bodies with the same keys and kinds of
values, texts of plain ASCII, and whole numbers of up to 18 digits. Any other line is for the decoder.
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from operator import itemgetter
from typing import Any

_TEXT = rb'"([ !#-\[\]-~]*)"'
_WHOLE = rb"(0|-?[1-9][0-9]{0,17})"
_FLOAT = rb"(-?[0-9]+(?:\.[0-9]+)?(?:e[+-][0-9]+)?)"
_Path = tuple[str | int, ...]


class Shape:
    """Of one body. fields: paths of the values to return, each a text, a whole number or a truth value."""

    def __init__(self, body: Mapping[str, Any], fields: list[_Path], fixed: tuple[str, ...]) -> None:
        """fixed: keys whose values belong to the shape."""
        self._paths: list[_Path] = []
        self._floats: list[int] = []
        pattern = self._object(body, (), fixed)
        self._pattern = re.compile(pattern)
        self._fields = itemgetter(*(self._paths.index(path) for path in fields))

    def values(self, line: bytes, begin: int, end: int) -> tuple[bytes, ...] | None:
        """The fields of the body in line[begin:end], as its bytes have them; None if it is not of this shape."""
        match = self._pattern.fullmatch(line, begin, end)
        if match is None:
            return None
        found = match.groups()
        for at in self._floats:
            if repr(float(found[at])).encode() != found[at]:
                return None
        values: tuple[bytes, ...] = self._fields(found)
        return values

    def _object(self, value: Mapping[str, Any], path: _Path, fixed: tuple[str, ...] = ()) -> bytes:
        members = (
            _literal(key) + b":" + (_literal(value[key]) if key in fixed else self._value(value[key], (*path, key)))
            for key in sorted(value)
        )
        return rb"\{" + b",".join(members) + rb"\}"

    def _value(self, value: Any, path: _Path) -> bytes:
        if isinstance(value, dict):
            return self._object(value, path)
        if isinstance(value, list):
            return rb"\[" + b",".join(self._value(each, (*path, i)) for i, each in enumerate(value)) + rb"\]"
        if value is None:
            return b"null"
        self._paths.append(path)
        if isinstance(value, bool):
            return b"(true|false)"
        if isinstance(value, float):
            self._floats.append(len(self._paths) - 1)
            return _FLOAT
        return _WHOLE if isinstance(value, int) else _TEXT


def _literal(value: Any) -> bytes:
    return re.escape(json.dumps(value).encode("ascii"))
