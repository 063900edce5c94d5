"""A SIGTERM to a rank is a notice that its machine is about to go: the group saves, and the process ends by the signal.

Ray runs training beside a main thread that stands in C++, where a Python handler may wait for long. So the notice is
read from Python's wakeup descriptor, which the interpreter's own handler writes to in whatever thread the signal came.
"""

from __future__ import annotations

import ctypes
import os
import signal
import threading
from typing import Any, Protocol

NUMBER = signal.SIGTERM
_SIG_DFL = 0


class Notice(Protocol):
    """What a rank asks of it."""

    heeded: bool  # false: the process serves no group, and a SIGTERM ends it as it ends any worker of Ray

    def arrived(self) -> bool:
        """Whether a SIGTERM came while it was heeded. About a microsecond, from any thread."""

    def leave(self) -> None:
        """Ends this process by the signal. Does not return, unless there is no signal to end by."""


class NoNotice:
    """Where no handler could be installed: signals do what they did before."""

    heeded = False

    def arrived(self) -> bool:
        return False

    def leave(self) -> None:
        return


class SignalNotice:
    """Takes SIGTERM over for this process's life. Only the main thread can make one: `notice_of_this_process`."""

    def __init__(self) -> None:
        self.heeded, self._came = False, False
        self._lock = threading.Lock()
        self._reader, writer = os.pipe2(os.O_NONBLOCK | os.O_CLOEXEC)
        self._before: Any = signal.signal(NUMBER, self._in_main_thread)
        signal.set_wakeup_fd(writer, warn_on_full_buffer=False)

    def arrived(self) -> bool:
        with self._lock:
            if not self._came:
                try:
                    self._came = NUMBER in os.read(self._reader, 4096)
                except BlockingIOError:
                    return False
            return self._came

    def leave(self) -> None:
        # `signal.signal` is for the main thread alone, and this one is to die before it does anything else.
        ctypes.CDLL(None).signal(int(NUMBER), _SIG_DFL)
        signal.pthread_sigmask(signal.SIG_UNBLOCK, [NUMBER])
        signal.pthread_kill(threading.get_ident(), NUMBER)

    def _in_main_thread(self, number: int, frame: Any) -> None:
        if self.heeded:
            return  # the thread that trains sees to it
        if callable(self._before):
            self._before(number, frame)
        else:
            self.leave()


def notice_of_this_process() -> Notice:
    """Call it once, in the main thread; elsewhere there is none."""
    return SignalNotice() if threading.current_thread() is threading.main_thread() else NoNotice()
