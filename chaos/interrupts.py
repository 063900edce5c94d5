"""Ctrl-C, SIGTERM and SIGHUP: one KeyboardInterrupt where work can be left, none where it would leave things behind.

KeyboardInterrupt, not an Exception: code that catches every Exception must not swallow it.
"""

from __future__ import annotations

import signal
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from types import FrameType
from typing import Any

_WATCHED = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP, signal.SIGALRM)  # the last: a deadline has passed


class Interrupts:
    """Handlers of the main thread for the length of a `with` block; in another thread it does nothing."""

    def __init__(self) -> None:
        self.signal: signal.Signals | None = None  # the first one that came
        self._deferrals = 0
        self._before: dict[signal.Signals, Any] = {}

    def __enter__(self) -> Interrupts:
        self.install()
        return self

    def install(self) -> None:
        """Takes the handlers, again if need be: `ray.init` puts its own in their place."""
        if threading.current_thread() is threading.main_thread():
            for number in _WATCHED:
                ignored = signal.getsignal(number) == signal.SIG_IGN and number not in self._before
                if ignored and number == signal.SIGHUP:
                    continue  # `nohup` asked for it
                before = signal.signal(number, self._note)
                self._before.setdefault(number, before)

    def ignore_hangups(self) -> None:
        """Until `install`: processes started meanwhile ignore SIGHUP. A terminal that closes sends it to them too, and
        they are needed for an end in order."""
        if threading.current_thread() is threading.main_thread():
            signal.signal(signal.SIGHUP, signal.SIG_IGN)

    def __exit__(self, *_exc: object) -> None:
        for number, before in self._before.items():
            signal.signal(number, before)

    def note(self, number: int) -> None:
        """A signal that came while somebody else had the handlers."""
        if self.signal is None:
            self.signal = signal.Signals(number)

    @contextmanager
    def deferred(self) -> Iterator[None]:
        """What begins in this block is finished; a signal takes effect at its end."""
        with self.held_off():
            yield
        if self.signal is not None and not self._deferrals:
            raise KeyboardInterrupt

    @contextmanager
    def held_off(self) -> Iterator[None]:
        """For cleaning up: signals are noted and have no other effect."""
        self._deferrals += 1
        try:
            yield
        finally:
            self._deferrals -= 1

    def _note(self, number: int, _frame: FrameType | None) -> None:
        self.note(number)
        if not self._deferrals:
            raise KeyboardInterrupt
