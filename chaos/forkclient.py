"""Asking the fork server for a process: the launcher's side, and what both sides say to each other.

Standard library only, and little of it: it runs in every launcher before the worker exists. A request is a length, a
JSON text and the descriptors 0, 1, 2 and the gate, a pipe at whose end the process waits before it begins; the
answers are who the process is, with a pidfd, and later its wait status.
"""

from __future__ import annotations

import json
import os
import signal
import socket
import struct
import sys
from dataclasses import asdict, dataclass

FORKSERVER_ENV = "KILLPOINT_FORKSERVER"
LENGTH = struct.Struct("!Q")
STARTED = struct.Struct("!qq")  # pid, start time in clock ticks
ENDED = struct.Struct("!q")  # wait status
_ANSWER_S = 30.0  # preloading takes 2 s of a free core


@dataclass(frozen=True)
class Request:
    """What the process is to be: `arguments` are the interpreter's, from the script on; `blocked` its signal mask."""

    arguments: list[str]
    unbuffered: bool
    environment: dict[str, str]
    folder: str
    umask: int
    blocked: list[int]

    @classmethod
    def parse(cls, text: bytes) -> Request:
        """The request that `to_json` wrote."""
        return cls(**json.loads(text))

    def to_json(self) -> bytes:
        """Any name and value of the environment survives it, text or not."""
        return json.dumps(asdict(self)).encode("ascii")


@dataclass(frozen=True)
class Served:
    """A worker whose parent is the fork server. `descriptor`, a pidfd, means it even after its pid is another's.

    gate: the launcher's end of the pipe.
    """

    pid: int
    ticks: int
    descriptor: int
    connection: socket.socket
    gate: int

    def release(self) -> None:
        """Lets it begin; from now on somebody may kill its process group."""
        os.close(self.gate)

    def send(self, number: int) -> None:
        """Sends a signal; without effect if the process has ended."""
        try:
            signal.pidfd_send_signal(self.descriptor, number)
        except ProcessLookupError:
            return

    def fileno(self) -> int:
        """Readable when it has ended, or the fork server has."""
        return self.connection.fileno()

    def wait(self) -> int | None:
        """The wait status; None if the fork server was gone before it could see the end."""
        try:
            return int(ENDED.unpack(_exactly(self.connection, ENDED.size))[0])
        except OSError:
            self.send(signal.SIGKILL)  # nobody would see its end
            return None


def ask(path: str, arguments: list[str], blocked: set[int | signal.Signals]) -> Served | None:
    """None if the fork server does not answer or cannot do it: then the launcher starts the process itself."""
    unbuffered = False
    while arguments[:1] == ["-u"]:
        unbuffered, arguments = True, arguments[1:]
    if not arguments or arguments[0].startswith("-"):
        return None  # `-c`, `-m` and options that a running interpreter cannot take
    connection = socket.socket(socket.AF_UNIX)
    theirs, ours = os.pipe()
    try:
        umask = os.umask(0o077)
        os.umask(umask)
        mask = [int(number) for number in blocked]
        request = Request(arguments, unbuffered, dict(os.environ), os.getcwd(), umask, mask)
        who, descriptor = _asked(connection, path, request, theirs)
        return Served(*who, descriptor, connection, ours)
    except OSError as error:
        connection.close()
        os.close(ours)
        print(f"killpoint launcher: no fork server at {path} ({error}); starting python", file=sys.stderr)
        return None
    finally:
        os.close(theirs)


def _asked(connection: socket.socket, path: str, request: Request, gate: int) -> tuple[tuple[int, int], int]:
    text = request.to_json()
    connection.settimeout(_ANSWER_S)
    connection.connect(path)
    socket.send_fds(connection, [LENGTH.pack(len(text))], [0, 1, 2, gate])
    connection.sendall(text)
    answer, descriptors, _flags, _address = socket.recv_fds(connection, STARTED.size, 1)
    if len(answer) != STARTED.size or len(descriptors) != 1:
        raise ConnectionError("it closed the connection")
    connection.settimeout(None)
    pid, ticks = STARTED.unpack(answer)
    return (pid, ticks), descriptors[0]


def _exactly(connection: socket.socket, size: int) -> bytes:
    data = b""
    while len(data) < size:
        more = connection.recv(size - len(data))
        if not more:
            raise ConnectionError("it closed the connection")
        data += more
    return data
