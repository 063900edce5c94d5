"""Text from disk on a terminal: what is no printable character is shown as its escape, never sent."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any


def printable(value: Any) -> Any:
    """The value with every text in it, keys included, safe to print: no control, no lone surrogate. Newlines stay.

    Mappings become dicts, lists and tuples lists; whatever else there is stays as it is.
    """
    if isinstance(value, str):
        return value if value.isprintable() else "".join(map(_shown, value))
    if isinstance(value, Mapping):
        return {printable(key): printable(item) for key, item in value.items()}
    if isinstance(value, (list, tuple)):
        return [printable(item) for item in value]
    return value


def _shown(letter: str) -> str:
    if letter.isprintable() or letter == "\n":
        return letter
    return letter.encode("unicode_escape").decode("ascii")
