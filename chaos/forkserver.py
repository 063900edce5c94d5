"""Starts worker processes by forking one that has imported torch and pyarrow already, but not ray.

A fresh worker spends most of its time on imports, so a run that is killed often is mostly importing. The server has
one thread whenever it forks, else a lock held by another one would stay locked in the child for ever. It is the
parent that waits for its children; each launcher (`chaos.launcher`, its client) is told how its own one ended. A
child dies with its launcher, and all of them die with the server, which dies with the process that started it.
"""

from __future__ import annotations

import gc
import importlib
import os
import secrets
import selectors
import signal
import socket
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path

from chaos.forkchild import Child, Interpreter, become
from chaos.forkclient import ENDED, FORKSERVER_ENV, LENGTH, STARTED, Request
from storage.process import start_ticks

# Not ray, which reads its job's id when it is imported; what it imports in turn saves a third of its own time.
PRELOAD = (
    "numpy", "pyarrow", "pyarrow.parquet", "pyarrow.compute", "pyarrow.dataset", "pyarrow.fs", "pandas", "xxhash",
    "safetensors", "psutil", "torch", "torch._dynamo", "torch.distributed", "requests", "jsonschema", "yaml",
    "google.protobuf.message", "packaging.version", "filelock", "attr", "html", "http.server", "logging.config",
    "mimetypes", "pdb", "tracemalloc", "faulthandler", "uuid", "multiprocessing", "concurrent.futures.thread",
)  # fmt: skip
# Keeps the imports from starting threads. Ray too gives its workers one OpenMP thread unless told otherwise.
_QUIET = {
    "OMP_NUM_THREADS": "1",
    "OPENBLAS_NUM_THREADS": "1",
    "JE_ARROW_MALLOC_CONF": "background_thread:false",
    "PYTORCH_NVML_BASED_CUDA_CHECK": "1",  # looking for a GPU must not initialize CUDA, which no fork survives
}
_GRACE_S = 2.0  # for children to end by themselves, as they do when Ray ends
_STOP_S = 10.0
_CREDENTIALS = 12


class ForkServer:
    """The server as the process sees it that starts it, and that it does not outlive."""

    def __init__(self, path: Path | None = None, preload: Sequence[str] = PRELOAD) -> None:
        name = f"killpoint-{os.getpid()}-{secrets.token_hex(4)}.sock"
        self.path = Path(tempfile.gettempdir(), name) if path is None else path
        self._preload = preload
        self._process: subprocess.Popen[bytes] | None = None

    @property
    def pid(self) -> int | None:
        """The server's pid; None unless it was started."""
        return None if self._process is None else self._process.pid

    @property
    def environment(self) -> dict[str, str]:
        """What a launcher needs to find it."""
        return {FORKSERVER_ENV: str(self.path)}

    def start(self) -> None:
        """Returns at once: whoever connects while the server is still importing waits for it."""
        with socket.socket(socket.AF_UNIX) as listener:
            os.fchmod(listener.fileno(), 0o600)
            listener.bind(str(self.path))
            listener.listen(64)
            self._process = subprocess.Popen(
                [sys.executable, "-m", "chaos.forkserver", str(listener.fileno()), *self._preload],
                stdin=subprocess.PIPE,  # held open for life: its end tells the server that this process is gone
                stdout=subprocess.DEVNULL,
                pass_fds=[listener.fileno()],
                env={**os.environ, **_QUIET},
            )

    def stop(self) -> None:
        """Ends the server and what it has forked. Idempotent."""
        process, self._process = self._process, None
        if process is None:
            return
        assert process.stdin is not None
        process.stdin.close()
        try:
            process.wait(_STOP_S)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()
        self.path.unlink(missing_ok=True)

    def __enter__(self) -> ForkServer:
        self.start()
        return self

    def __exit__(self, *_exc: object) -> None:
        self.stop()


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
    """The loop. In a forked child `serve` returns what the child is to become; in the server itself None."""

    def __init__(self, listener: socket.socket, lifeline: int) -> None:
        self._listener, self._lifeline = listener, lifeline
        self._clients: set[_Client] = set()
        self._until: float | None = None
        self._selector = selectors.DefaultSelector()
        self._watch(listener, self._accept)
        self._watch(lifeline, self._end)

    def serve(self) -> Child | None:
        """Until the starter is gone and no child is left."""
        while self._until is None or any(client.pidfd is not None for client in self._clients):
            left = None if self._until is None else self._until - time.monotonic()
            if left is not None and left <= 0:
                self._kill_all()
                left = None
            for key, _events in self._selector.select(left):
                child: Child | None = key.data()
                if child is not None:
                    return child
        return None

    def _watch(self, what: socket.socket | int, react: Callable[[], Child | None]) -> None:
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

    def _receive(self, client: _Client) -> Child | None:
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
            return self._fork(client, Request.parse(bytes(client.text[LENGTH.size :])))
        return None

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
        self._until = time.monotonic() + _GRACE_S

    def _kill_all(self) -> None:
        for client in self._clients:
            if client.pidfd is not None:
                signal.pidfd_send_signal(client.pidfd, signal.SIGKILL)
        self._until = time.monotonic() + _STOP_S

    def _release(self, kept: Sequence[int]) -> None:
        """In the child: nothing of the server's stays open but the descriptors it was sent."""
        self._selector.close()
        self._listener.close()
        for client in self._clients:
            client.connection.close()
            others = [fd for fd in client.descriptors if fd not in kept]
            for descriptor in others if client.pidfd is None else [*others, client.pidfd]:
                os.close(descriptor)


def _group_of(launcher: int) -> int | None:
    try:
        return os.getpgid(launcher)
    except ProcessLookupError:
        return None


def main(descriptor: int, preload: Sequence[str]) -> None:
    """The server's process, and then each child's."""
    for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
        signal.signal(number, signal.SIG_IGN)  # meant for the starter, with which it ends
    gc.disable()
    interpreter = Interpreter.before_preloading()
    for name in preload:
        with suppress(ImportError):
            importlib.import_module(name)
    interpreter.after_preloading()
    gc.collect()
    gc.freeze()  # collections in the children leave these pages shared
    child = Server(socket.socket(fileno=descriptor), 0).serve()
    if child is not None:
        become(child, interpreter)


if __name__ == "__main__":
    main(int(sys.argv[1]), sys.argv[2:])
