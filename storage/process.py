"""Who a process is, and whether it still runs. Standard library only.

Serves invariant 6 (a fenced process must be known to be gone) and 10 (deaths are matched with receipts). A
pid alone names nothing, since the kernel reuses pids; together with the start time in clock ticks since boot
(field 22 of /proc/PID/stat, proc(5)) and the host it does, within one boot.
"""

from __future__ import annotations

import os
import socket
from dataclasses import dataclass
from pathlib import Path

from storage.errors import Unavailable

_GONE = frozenset("ZXx")


@dataclass(frozen=True)
class ProcessId:
    """One process of one boot of one host. start_ticks: clock ticks since boot at which it started."""

    host: str
    pid: int
    start_ticks: int


def this_host() -> str:
    """The name under which this host appears in logs, receipts and history files."""
    return socket.gethostname()


def boot_id() -> str:
    """The kernel's id of the current boot; durations and ticks compare within one boot only."""
    return Path("/proc/sys/kernel/random/boot_id").read_text("ascii").strip()


def current_process() -> ProcessId:
    """The calling process."""
    pid = os.getpid()
    ticks = start_ticks(pid)
    if ticks is None:
        raise Unavailable(f"/proc/{pid}/stat", "cannot be read for the calling process: is /proc mounted?")
    return ProcessId(this_host(), pid, ticks)


def start_ticks(pid: int) -> int | None:
    """Start time of `pid` in clock ticks since boot; None if there is no such process on this host."""
    fields = _stat(f"/proc/{pid}/stat")
    return None if fields is None else int(fields[19])


def is_alive(process: ProcessId) -> bool:
    """Whether exactly this process can still run code.

    False for a zombie and for another process under the same pid. A process whose first thread has ended
    while another still runs (a kill in progress does this, and such a thread may sit in a write) counts as
    alive. Raises Unavailable for a process of another host: it cannot be known from here.
    """
    fields = _stat_of(process)
    if fields is None:
        return False
    return fields[0] not in _GONE or _has_live_thread(process.pid)


def is_stopped(process: ProcessId) -> bool:
    """Whether exactly this process exists and is stopped by a signal (state T). Raises as `is_alive` does."""
    fields = _stat_of(process)
    return fields is not None and fields[0] == "T"


def _stat_of(process: ProcessId) -> list[str] | None:
    if process.host != this_host():
        raise Unavailable(f"process {process.pid} on {process.host}", f"cannot be seen from {this_host()}")
    fields = _stat(f"/proc/{process.pid}/stat")
    if fields is None or int(fields[19]) != process.start_ticks:
        return None
    return fields


def _stat(path: str) -> list[str] | None:
    """Fields of a stat file from the third (state) on. The second, the command, may hold anything."""
    try:
        with open(path, "rb") as file:
            text = file.read().decode("utf-8", "replace")
    except (FileNotFoundError, ProcessLookupError):
        return None
    return text[text.rindex(")") + 2 :].split()


def _has_live_thread(pid: int) -> bool:
    try:
        threads = os.listdir(f"/proc/{pid}/task")
    except (FileNotFoundError, ProcessLookupError):
        return False
    states = (_stat(f"/proc/{pid}/task/{thread}/stat") for thread in threads)
    return any(fields is not None and fields[0] not in _GONE for fields in states)
