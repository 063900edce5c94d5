"""What a launcher writes down of its worker, and where: in the history of the run that the worker serves just now.

A worker may serve one run after another. It says so over an abstract Unix socket, whose name it finds in
KILLPOINT_WITNESS: one connection a request, `{"folder", "run"}` to be watched for a run, `{}` to be released from it.
The answer is empty, or says what went wrong. Standard library only. Owns the observed half of invariant 10.
"""

from __future__ import annotations

import json
import os
import select
import socket
import struct
import sys

TYPE_CHECKING = False  # `typing` costs 10 ms
if TYPE_CHECKING:
    from typing import Protocol

    from storage.history import History

    class Child(Protocol):
        """The worker; `fileno` becomes readable when it has ended."""

        @property
        def pid(self) -> int: ...
        @property
        def ticks(self) -> int | None: ...
        def fileno(self) -> int: ...


WITNESS_ENV = "KILLPOINT_WITNESS"
_PEER = struct.Struct("3i")  # pid, uid, gid: unix(7), SO_PEERCRED
_REQUEST_S = 2.0  # a worker that is stopped or killed halfway through a request
_MOST_BYTES = 1 << 16


class Witness:
    """Listens from its creation on, so that the child finds it."""

    def __init__(self) -> None:
        self._socket = socket.socket(socket.AF_UNIX)
        name = f"killpoint-{os.getpid()}-{os.urandom(8).hex()}"
        self._socket.bind(f"\0{name}")
        self._socket.listen(4)
        self._history: History | None = None
        os.environ[WITNESS_ENV] = name

    def attend(self, child: Child) -> None:
        """Answers the child's requests until it has ended."""
        poll = select.poll()
        poll.register(self._socket, select.POLLIN)
        poll.register(child.fileno(), select.POLLIN)
        while True:
            ready = {descriptor for descriptor, _event in poll.poll()}
            if self._socket.fileno() not in ready:
                return
            self._answer(child)  # also what it has asked before its end

    def ended(self, child: Child, killed_by: int | None, code: int | None) -> None:
        """Records how the child ended, if it was watched for a run."""
        if self._history is not None:
            self._finish(child, "exited", signal=killed_by, code=code)

    def _answer(self, child: Child) -> None:
        connection, _address = self._socket.accept()
        with connection:
            connection.settimeout(_REQUEST_S)
            try:
                peer = connection.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, _PEER.size)
                if _PEER.unpack(peer)[0] != child.pid:
                    return  # somebody else's process has no say
                self._serve(child, json.loads(_line(connection)))
                connection.sendall(b"\n")
            except Exception as error:  # the worker works on, and what was not seen makes the verdict unknown
                complain(child.pid, repr(error))

    def _serve(self, child: Child, request: dict[str, str]) -> None:
        if self._history is not None:
            self._finish(child, "released")
        if not request:
            return
        from pathlib import Path

        from storage.history import History

        history = History.open(Path(request["folder"]), "launcher", request["run"])
        history.record("spawned", pid=child.pid, start_ticks=child.ticks)
        self._history = history

    def _finish(self, child: Child, event: str, **how: int | None) -> None:
        history, self._history = self._history, None
        assert history is not None
        try:
            history.record(event, pid=child.pid, start_ticks=child.ticks, **how)
            history.close()
        except Exception as error:
            complain(child.pid, repr(error))


def complain(child: int, why: str) -> None:
    """On standard error, which Ray keeps in the worker's log."""
    print(f"killpoint launcher: the end of process {child} goes unrecorded: {why}", file=sys.stderr)


def _line(connection: socket.socket) -> bytes:
    data = b""
    while not data.endswith(b"\n"):
        more = connection.recv(_MOST_BYTES)
        data += more
        if not more or len(data) > _MOST_BYTES:
            raise ConnectionError("the worker's request has no end")
    return data
