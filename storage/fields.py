"""Strict reading of decoded JSON: exactly the fields that the format has, each of its type, else Damaged."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from typing import Any, TypeVar

from storage.errors import Damaged

T = TypeVar("T")

BULK = re.compile(r"xxh3-128:[0-9a-f]{32}")
SEALED = re.compile(r"sha256:[0-9a-f]{64}")
CHAIN = re.compile(r"[0-9a-f]{64}")


class Fields:
    """One JSON object at `where`. Every method raises Damaged naming the field unless it is as asked for."""

    def __init__(self, value: object, where: str, keys: set[str]) -> None:
        """Raises Damaged unless `value` is an object with exactly these keys."""
        if not isinstance(value, dict):
            raise Damaged(where, "must be a JSON object")
        if value.keys() != keys:
            missing, unknown = sorted(keys - value.keys()), sorted(map(str, value.keys() - keys))
            raise Damaged(where, f"has the wrong fields: missing {missing}, unknown {unknown}")
        self._value: dict[str, Any] = value
        self.where = where

    def text(self, key: str, pattern: re.Pattern[str] | None = None) -> str:
        """A string that is not empty and, if a pattern is given, matches it whole."""
        value = self._value[key]
        if not isinstance(value, str) or not value or (pattern and not pattern.fullmatch(value)):
            raise self.wrong(key, "text" if pattern is None else f"text of the form {pattern.pattern}")
        return value

    def free_text(self, key: str) -> str:
        """A string, perhaps empty."""
        value = self._value[key]
        if not isinstance(value, str):
            raise self.wrong(key, "text")
        return value

    def count(self, key: str) -> int:
        """An integer from 0."""
        value = self._value[key]
        if type(value) is not int or value < 0:
            raise self.wrong(key, "an integer from 0")
        return value

    def constant(self, key: str, expected: str) -> None:
        if self._value[key] != expected:
            raise self.wrong(key, repr(expected))

    def optional(self, key: str, read: Callable[[str], T]) -> T | None:
        """None for null, else what `read` makes of the key."""
        return None if self._value[key] is None else read(key)

    def items(self, key: str) -> list[Any]:
        value = self._value[key]
        if not isinstance(value, list):
            raise self.wrong(key, "a list")
        return value

    def names(self, key: str) -> tuple[str, ...]:
        """A list of strings that are not empty."""
        value = self.items(key)
        if not all(isinstance(name, str) and name for name in value):
            raise self.wrong(key, "a list of names")
        return tuple(value)

    def nested(self, key: str, keys: set[str]) -> Fields:
        return Fields(self._value[key], f"{self.where}: {key}", keys)

    def digests(self, key: str, allowed: re.Pattern[str]) -> Mapping[str, str]:
        """An object of bulk digests whose names all match `allowed`."""
        value = self._value[key]
        if not isinstance(value, dict):
            raise self.wrong(key, "a JSON object")
        for name, digest in value.items():
            if not allowed.fullmatch(name):
                raise Damaged(self.where, f"{key} has the unknown name {name!r}")
            if not isinstance(digest, str) or not BULK.fullmatch(digest):
                raise Damaged(self.where, f"{key}: {name} must have a digest of the form {BULK.pattern}")
        return value

    def wrong(self, key: str, expected: str) -> Damaged:
        return Damaged(self.where, f"{key} must be {expected}, is {self._value[key]!r:.200}")
