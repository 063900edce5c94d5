"""The fork server's own loop: forks a process for every launcher that asks, and tells it how the process ended.

It has one thread whenever it forks. Of Ray's workers it forks only the first one's server (`forkjobs.py`).
"""

from __future__ import annotations

import os
import selectors
import signal
import socket
import sys
import time
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from functools import partial

from chaos.forkchild import Child
from chaos.forkclient import ENDED, LENGTH, STARTED, Request
from chaos.forkjobs import Job, JobServer
from storage.process import start_ticks

_GRACE_S = 2.0  # for children to end by themselves, as they do when Ray ends
STOP_S = 10.0
_CREDENTIALS = 12


@dataclass(eq=False)
class _Client:
    """A launcher: what it has said so far, and its process once there is one."""

    connection: socket.socket
    launcher: int
    text: bytearray = field(default_factory=bytearray)
    descriptors: list[int] = field(default_factory=list)
    pidfd: int | None = None
    open: bool = True


class Server:
    """The loop. In a forked child `serve` returns what the child is to become; in the server itself None.

    job: whose workers it forks, if it is not the first server.
    """

    def __init__(self, listener: socket.socket, lifeline: int, job: Job | None = None) -> None:
        self._listener, self._lifeline, self._job = listener, lifeline, job
        self._clients: set[_Client] = set()
        self._jobs: dict[Job, JobServer] = {}
        self._until: float | None = None
        self._selector = selectors.DefaultSelector()
        self._watch(listener, self._accept)
        self._watch(lifeline, self._end)

    def serve(self) -> Child | JobServer | None:
        """Until the starter is gone and no child is left."""
        while self._until is None or self._has_children():
            left = None if self._until is None else self._until - time.monotonic()
            if left is not None and left <= 0:
                self._kill_all()
                left = None
            for key, _events in self._selector.select(left):
                child: Child | JobServer | None = key.data()
                if child is not None:
                    return child
        return None

    def _has_children(self) -> bool:
        known = [*(client.pidfd for client in self._clients), *(job.pidfd for job in self._jobs.values())]
        return any(pidfd is not None for pidfd in known)

    def _watch(self, what: socket.socket | int, react: Callable[[], Child | JobServer | None]) -> None:
        self._selector.register(what, selectors.EVENT_READ, react)

    def _accept(self) -> None:
        connection, _address = self._listener.accept()
        raw = connection.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, _CREDENTIALS)
        pid, uid = (int.from_bytes(raw[at : at + 4], sys.byteorder) for at in (0, 4))
        if uid != os.geteuid():
            connection.close()
            return
        connection.setblocking(False)
        client = _Client(connection, pid)
        self._clients.add(client)
        self._watch(connection, partial(self._receive, client))

    def _receive(self, client: _Client) -> Child | JobServer | None:
        if not client.open:  # closed by what was seen in the same moment
            return None
        try:
            data, descriptors, _flags, _address = socket.recv_fds(client.connection, 1 << 16, 4)
        except ConnectionError:
            data, descriptors = b"", []
        client.descriptors += descriptors
        client.text += data
        if not data:
            self._hung_up(client)
            return None
        size = LENGTH.unpack_from(client.text)[0] if len(client.text) >= LENGTH.size else None
        if client.pidfd is None and size is not None and len(client.text) == LENGTH.size + size:
            return self._answer(client, Request.parse(bytes(client.text[LENGTH.size :])))
        return None

    def _answer(self, client: _Client, request: Request) -> Child | JobServer | None:
        job = Job.of(request)
        if job is None or job == self._job:
            return self._fork(client, request)
        if job not in self._jobs:
            if self._job is not None:  # a referral leads to the job's own server, and no further
                self._hung_up(client)
                return None
            server = JobServer.fork(job, self._listener.getsockname())
            if server.pidfd is None:
                self._release([])
                return server
            self._jobs[job] = server
            self._watch(server.pidfd, partial(self._reap_job, server))
        if not self._jobs[job].serves:
            return self._fork(client, request)
        with suppress(OSError):
            path = os.fsencode(self._jobs[job].path)
            client.connection.send(STARTED.pack(0, len(path)) + path)
        self._hung_up(client)
        return None

    def _reap_job(self, server: JobServer) -> None:
        """Of a server that could not import Ray, or ended in any other way, workers are forked here."""
        assert server.pidfd is not None
        self._selector.unregister(server.pidfd)
        server.reap()

    def _fork(self, client: _Client, request: Request) -> Child | None:
        threads = os.listdir("/proc/self/task")
        if len(threads) != 1 or len(client.descriptors) != 4:
            print(f"killpoint fork server: refused, with {len(threads)} threads", file=sys.stderr)
            self._hung_up(client)
            return None
        child = Child(request, client.descriptors, client.launcher, _group_of(client.launcher), os.getpid())
        pid = os.fork()
        if pid == 0:
            self._release(client.descriptors)
            return child
        child.join_group(pid)
        client.pidfd = os.pidfd_open(pid)
        self._watch(client.pidfd, partial(self._reap, client, pid))
        for descriptor in client.descriptors:
            os.close(descriptor)
        client.descriptors = []
        with suppress(OSError):  # gone already: its end of the connection says so next
            who = STARTED.pack(pid, start_ticks(pid) or 0)
            socket.send_fds(client.connection, [who], [client.pidfd])
        return None

    def _reap(self, client: _Client, pid: int) -> None:
        _pid, status = os.waitpid(pid, 0)
        assert client.pidfd is not None
        self._selector.unregister(client.pidfd)
        os.close(client.pidfd)
        client.pidfd = None
        if client.open:
            with suppress(OSError):
                client.connection.send(ENDED.pack(status))
            self._hung_up(client)
        else:
            self._clients.remove(client)

    def _hung_up(self, client: _Client) -> None:
        """A launcher that is gone cannot record how its process ends, so the process ends with it."""
        self._selector.unregister(client.connection)
        client.connection.close()
        client.open = False
        for descriptor in client.descriptors:
            os.close(descriptor)
        client.descriptors = []
        if client.pidfd is None:
            self._clients.remove(client)
        else:
            signal.pidfd_send_signal(client.pidfd, signal.SIGKILL)

    def _end(self) -> None:
        """The starter is gone: nothing new is started, and what there is gets a moment to end by itself."""
        self._selector.unregister(self._lifeline)
        self._selector.unregister(self._listener)
        with suppress(OSError):
            os.unlink(self._listener.getsockname())
        self._listener.close()
        for job in self._jobs.values():
            job.end()
        self._until = time.monotonic() + _GRACE_S

    def _kill_all(self) -> None:
        """But not the jobs' servers, which do the same, and end once they have seen their children end."""
        for client in self._clients:
            if client.pidfd is not None:
                signal.pidfd_send_signal(client.pidfd, signal.SIGKILL)
        self._until = time.monotonic() + STOP_S

    def _release(self, kept: Sequence[int]) -> None:
        """In the child: nothing of the server's stays open but the descriptors it was sent."""
        self._selector.close()
        self._listener.close()
        for client in self._clients:
            client.connection.close()
            others = [fd for fd in client.descriptors if fd not in kept]
            for descriptor in others if client.pidfd is None else [*others, client.pidfd]:
                os.close(descriptor)
        for job in self._jobs.values():
            job.release()


def _group_of(launcher: int) -> int | None:
    try:
        return os.getpgid(launcher)
    except ProcessLookupError:
        return None
