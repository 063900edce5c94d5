"""Asking the fork server for a process: the launcher's side, and what both sides say to each other.

Standard library only, and little of it: it runs in every launcher before the worker exists. A request is a length, a
JSON text and the descriptors 0, 1, 2 and the gate, a pipe at whose end the process waits before it begins; the
answers are who the process is, with a pidfd, and later its wait status; or the path of the server to ask instead.
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
STARTED = struct.Struct("!qq")  # pid, start time in clock ticks; or 0 and the length of the path that follows
ENDED = struct.Struct("!q")  # wait status
INHERITED = (signal.SIGINT, signal.SIGTERM)  # ignored by a child whose parent ignores them
_ANSWER_S = 30.0  # preloading takes 2 s of a free core


@dataclass(frozen=True)
class Request:
    """What the process is to be: `arguments` are the interpreter's, from the script on; `blocked` its signal mask.

    ignored: the signals that the launcher ignores, which an interpreter that it starts would ignore too.
    """

    arguments: list[str]
    unbuffered: bool
    environment: dict[str, str]
    folder: str
    umask: int
    blocked: list[int]
    ignored: list[int]

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
    theirs, ours = os.pipe()
    try:
        umask = os.umask(0o077)
        os.umask(umask)
        mask = [int(number) for number in blocked]
        ignored = [int(number) for number in INHERITED if signal.getsignal(number) is signal.SIG_IGN]
        request = Request(arguments, unbuffered, dict(os.environ), os.getcwd(), umask, mask, ignored)
        return _asked(path, request, theirs, ours)
    except OSError as error:
        os.close(ours)
        print(f"killpoint launcher: no fork server at {path} ({error}); starting python", file=sys.stderr)
        return None
    finally:
        os.close(theirs)


def _asked(path: str, request: Request, theirs: int, ours: int) -> Served:
    """Asks the server at `path`, and the one that it refers to. `theirs`, `ours`: the two ends of the gate."""
    connection = socket.socket(socket.AF_UNIX)
    text = request.to_json()
    try:
        connection.settimeout(_ANSWER_S)
        connection.connect(path)
        socket.send_fds(connection, [LENGTH.pack(len(text))], [0, 1, 2, theirs])
        connection.sendall(text)
        answer, descriptors, _flags, _address = socket.recv_fds(connection, STARTED.size, 1)
        if len(answer) != STARTED.size:
            raise ConnectionError("it closed the connection")
        pid, ticks = STARTED.unpack(answer)
        if pid == 0:
            path = os.fsdecode(_exactly(connection, ticks))
        elif len(descriptors) == 1:
            connection.settimeout(None)
            return Served(pid, ticks, descriptors[0], connection, ours)
        else:
            raise ConnectionError("it sent no descriptor")
    except OSError:
        connection.close()
        raise
    connection.close()
    return _asked(path, request, theirs, ours)


def _exactly(connection: socket.socket, size: int) -> bytes:
    data = b""
    while len(data) < size:
        more = connection.recv(size - len(data))
        if not more:
            raise ConnectionError("it closed the connection")
        data += more
    return data
