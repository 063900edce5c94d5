"""A file of JSON lines, each durable when it is written, which one undertaking begins and later goes on with.

The first line says whose it is. A torn last line counts for nothing; any other that is damaged is refused by number.
"""

from __future__ import annotations

import json
import os
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any, TypeVar

from chaos.errors import ChaosError

T = TypeVar("T")


class JournalFile:
    """wrong: makes the error of a text. other: what is the matter if the file belongs to something else."""

    def __init__(
        self, path: Path, header: Mapping[str, Any], wrong: Callable[[str], ChaosError], other: str
    ) -> None:
        """Creates it in a new or empty folder, or goes on with it. Raises what `wrong` makes."""
        self.path, self._wrong, self._lines = path, wrong, list[dict[str, Any]]()
        folder = path.parent
        if path.exists():
            self._read(json.loads(json.dumps(header)), other)
        elif folder.exists() and any(folder.iterdir()):
            raise wrong(f"{folder}: is not empty and has no {path.name}: give another --output")
        else:
            folder.mkdir(parents=True, exist_ok=True)
            self.append(header)

    def rows(self, read: Callable[[Mapping[str, Any]], T]) -> Iterator[T]:
        """Each line after the first one that was there already, as `read` has it."""
        for number, line in enumerate(self._lines, start=2):
            try:
                yield read(line)
            except (ValueError, LookupError, TypeError, AttributeError) as error:
                raise self._damaged(number, error) from error

    def append(self, *values: Mapping[str, Any]) -> None:
        """One line each; durable when this returns."""
        text = "".join(json.dumps(value, sort_keys=True) + "\n" for value in values)
        with self.path.open("a", encoding="utf-8") as file:
            file.write(text)
            file.flush()
            os.fsync(file.fileno())

    def _read(self, header: Mapping[str, Any], other: str) -> None:
        whole = self.path.read_bytes()
        complete = whole[: whole.rfind(b"\n") + 1]
        found = []
        for number, line in enumerate(complete.splitlines(), start=1):
            try:
                found.append(json.loads(line))
            except (ValueError, RecursionError) as error:
                raise self._damaged(number, error) from error
        if not found or found[0] != header:
            raise self._wrong(f"{self.path}: {other}: give another --output, or the options that it was begun with")
        if len(complete) < len(whole):
            with self.path.open("r+b") as file:
                file.truncate(len(complete))
        self._lines = found[1:]

    def _damaged(self, number: int, error: Exception) -> ChaosError:
        why = f"{error}".splitlines()[0] if f"{error}" else type(error).__name__
        return self._wrong(f"{self.path}: line {number} is damaged ({why:.120}): give another --output")
