"""A store that answers with errors for a while, as one process sees it: every use of it fails as an I/O error does.

`FlakyObjects` lies around the process's objects for good and costs one look; a strike makes it fail.
"""

from __future__ import annotations

import errno
import os
import threading
import time
from collections.abc import Iterator
from contextlib import AbstractContextManager, contextmanager

from chaos.faults import Outage
from storage.digests import Buffer
from storage.errors import Unavailable
from storage.objects import BulkWriter, Names, Objects, Reached, no_point


class Weather:
    """Whether the store answers, for all threads of one process."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._operations, self._until = 0, 0.0
        self._bad = False

    def turn(self, outage: Outage) -> None:
        """From now on it does not, for as long as the outage says."""
        with self._lock:
            self._operations = outage.operations or 0
            self._until = time.monotonic() + (outage.for_s or 0.0)
            self._bad = True

    def require_answer(self, name: str) -> None:
        """Before each operation. Raises Unavailable."""
        if self._bad and self._fails():
            raise Unavailable(name, str(OSError(errno.EIO, os.strerror(errno.EIO))))

    def _fails(self) -> bool:
        with self._lock:
            if self._operations > 0:
                self._operations -= 1
                return True
            self._bad = time.monotonic() < self._until
            return self._bad


class FlakyObjects:
    """Objects that fail, before anything is done, while the weather is bad."""

    def __init__(self, objects: Objects, weather: Weather) -> None:
        self._objects, self._weather = objects, weather

    def read(self, name: str) -> bytes:
        self._weather.require_answer(name)
        return self._objects.read(name)

    def size(self, name: str) -> int:
        self._weather.require_answer(name)
        return self._objects.size(name)

    def list(self, folder: str) -> Names:
        self._weather.require_answer(folder)
        return self._objects.list(folder)

    def create(self, name: str, data: bytes, reached: Reached = no_point) -> None:
        self._weather.require_answer(name)
        self._objects.create(name, data, reached)

    def open_bulk(self, name: str) -> AbstractContextManager[BulkWriter]:
        return self._opened(name)

    @contextmanager
    def _opened(self, name: str) -> Iterator[BulkWriter]:
        self._weather.require_answer(name)
        with self._objects.open_bulk(name) as writer:
            yield _FlakyWriter(name, writer, self._weather)

    def remove(self, name: str, reached: Reached = no_point) -> None:
        self._weather.require_answer(name)
        self._objects.remove(name, reached)

    def quarantine(self, name: str) -> str:
        self._weather.require_answer(name)
        return self._objects.quarantine(name)


class _FlakyWriter:
    def __init__(self, name: str, writer: BulkWriter, weather: Weather) -> None:
        self._name, self._writer, self._weather = name, writer, weather

    def write(self, buffer: Buffer) -> None:
        self._weather.require_answer(self._name)
        self._writer.write(buffer)

    def sync(self, reached: Reached = no_point) -> None:
        self._weather.require_answer(self._name)
        self._writer.sync(reached)
