"""Gates: "killed while the save stood at stage X" as a fact, by two FIFOs for each gated fault.

`<fault>.held` says that the gate is held: the holder writes one byte and keeps the FIFO open, so the byte is
there exactly as long as a living process stands at the gate. `<fault>.release` lets it go on. Nothing sleeps
and looks again: both sides wait in the kernel, to a deadline. FIFOs join processes of one host only.
"""

from __future__ import annotations

import errno
import os
import select
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from chaos.errors import GateNotHeld, GateNotReleased


def create_gate(folder: Path, fault: str) -> None:
    """Makes the FIFOs of a gated fault in the run folder. Those that are there are kept."""
    for path in (_held(folder, fault), _release(folder, fault)):
        path.parent.mkdir(parents=True, exist_ok=True)
        if not path.exists():
            os.mkfifo(path, 0o600)


def hold_gate(folder: Path, fault: str, deadline_s: float) -> None:
    """Stands at the gate until it is released. Raises GateNotReleased at the deadline."""
    release, held = _release(folder, fault), _held(folder, fault)
    with _opened(release, os.O_RDWR) as released, _opened(held, os.O_RDWR) as standing:
        os.write(standing, b"h")
        if not _wait(released, deadline_s):
            raise GateNotReleased(
                f"gate of fault {fault}: held for {deadline_s:g} s and nothing struck; check that the "
                "fault's passage can be reached while the gate is held"
            )


def wait_held(folder: Path, fault: str, deadline_s: float) -> None:
    """Returns as soon as a living process stands at the gate. Raises GateNotHeld: then nothing may strike."""
    until = time.monotonic() + deadline_s
    with _opened(_held(folder, fault), os.O_RDONLY) as held:
        events = _wait(held, until - time.monotonic())
    if events & select.POLLIN and not events & select.POLLHUP:
        return
    why = "its process is gone" if events else f"not held within {deadline_s:g} s"
    raise GateNotHeld(f"gate of fault {fault}: {why}; the fault did not strike")


def release_gate(folder: Path, fault: str) -> bool:
    """Lets the holder go on. False if nobody stands at the gate."""
    try:
        descriptor = os.open(_release(folder, fault), os.O_WRONLY | os.O_NONBLOCK | os.O_CLOEXEC)
    except OSError as error:
        if error.errno in (errno.ENXIO, errno.ENOENT):
            return False
        raise
    try:
        os.write(descriptor, b"r")
    finally:
        os.close(descriptor)
    return True


def _held(folder: Path, fault: str) -> Path:
    return folder / "history" / "gates" / f"{fault}.held"


def _release(folder: Path, fault: str) -> Path:
    return folder / "history" / "gates" / f"{fault}.release"


@contextmanager
def _opened(path: Path, flags: int) -> Iterator[int]:
    descriptor = os.open(path, flags | os.O_NONBLOCK | os.O_CLOEXEC)
    try:
        yield descriptor
    finally:
        os.close(descriptor)


def _wait(descriptor: int, deadline_s: float) -> int:
    """The poll events of the descriptor, 0 at the deadline."""
    poll = select.poll()
    poll.register(descriptor, select.POLLIN)
    found = poll.poll(max(0, round(deadline_s * 1000)))
    return found[0][1] if found else 0
