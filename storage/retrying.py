"""Objects that are asked again while the store does not answer, up to a deadline: a hiccup must not cost work.

Only `Unavailable` is worth it. Creating again is safe since creations are exclusive: if the name is taken after a
failure whose outcome was open, what lies there is compared with what was to be created.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from contextlib import AbstractContextManager
from typing import TypeVar

from storage.errors import AlreadyExists, Unavailable
from storage.objects import BulkWriter, Names, Objects, Reached, no_point

T = TypeVar("T")
_FIRST_WAIT_S, _LONGEST_WAIT_S = 0.05, 0.5


class Retrying:
    """`objects`, each call again and again while it raises Unavailable, which it raises itself after `deadline_s`.

    failed: told of every failure, before the wait. What is written piece by piece only its writer can write again,
    through `again`. Threads may call at once; each has the whole deadline.
    """

    def __init__(
        self, objects: Objects, deadline_s: float, failed: Callable[[Unavailable], None] = lambda error: None
    ) -> None:
        self._objects, self._deadline_s, self._failed = objects, deadline_s, failed

    def again(self, work: Callable[[], T], undo: Callable[[], None] = lambda: None) -> T:
        """`work()`, after a failure `undo()` first. Raises what they raise, Unavailable only at the deadline."""
        until, wait_s = time.monotonic() + self._deadline_s, _FIRST_WAIT_S
        failed = False
        while True:
            try:
                if failed:
                    undo()
                return work()
            except Unavailable as error:
                self._failed(error)
                failed = True
                if time.monotonic() + wait_s > until:
                    raise
            time.sleep(wait_s)
            wait_s = min(2 * wait_s, _LONGEST_WAIT_S)

    def read(self, name: str) -> bytes:
        return self.again(lambda: self._objects.read(name))

    def size(self, name: str) -> int:
        return self.again(lambda: self._objects.size(name))

    def list(self, folder: str) -> Names:
        return self.again(lambda: self._objects.list(folder))

    def create(self, name: str, data: bytes, reached: Reached = no_point) -> None:
        tries = 0

        def create() -> None:
            nonlocal tries
            tries += 1
            try:
                self._objects.create(name, data, reached)
            except AlreadyExists:
                if tries == 1 or self._objects.read(name) != data:
                    raise
                self._objects.list(name.partition("/")[0])  # its creation may not have come to be durable

        self.again(create)

    def open_bulk(self, name: str) -> AbstractContextManager[BulkWriter]:
        return self._objects.open_bulk(name)

    def rewritten(self, name: str, write: Callable[[Objects], T]) -> T:
        """`write`, which writes `name` piece by piece; what a failure has left of it is removed before it writes again.

        The name must be the caller's alone.
        """
        return self.again(lambda: write(self._objects), lambda: self._objects.remove(name))

    def remove(self, name: str, reached: Reached = no_point) -> None:
        self.again(lambda: self._objects.remove(name, reached))

    def quarantine(self, name: str) -> str:
        return self.again(lambda: self._objects.quarantine(name))
