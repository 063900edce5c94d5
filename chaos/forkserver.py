"""Starts worker processes by forking one that has imported torch and pyarrow already, and for Ray's workers Ray too.

A fresh worker spends most of its time on imports, so a run that is killed often is mostly importing. The server has
one thread whenever it forks, else a lock held by another one would stay locked in the child for ever. It is the
parent that waits for its children; each launcher (`chaos.launcher`, its client) is told how its own one ended. A
child dies with its launcher, and all of them die with the server, which dies with the process that started it.

Ray reads its job's id when it is imported. So the workers of a job are forked by a server of the job's own, which the
first one forks, and to which it refers their launchers.
"""

from __future__ import annotations

import gc
import importlib
import os
import secrets
import signal
import socket
import subprocess
import sys
import tempfile
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path

from chaos.forkchild import Child, Interpreter, become
from chaos.forkclient import FORKSERVER_ENV
from chaos.forkjobs import JobServer, import_ray
from chaos.forkloop import STOP_S, Server

# Not ray (see above), but what it imports in turn.
PRELOAD = (
    "numpy", "pyarrow", "pyarrow.parquet", "pyarrow.compute", "pyarrow.dataset", "pyarrow.fs", "pandas", "xxhash",
    "safetensors", "psutil", "torch", "torch._dynamo", "torch.distributed", "requests", "jsonschema", "yaml",
    "google.protobuf.message", "packaging.version", "filelock", "attr", "html", "http.server", "logging.config",
    "mimetypes", "pdb", "tracemalloc", "faulthandler", "uuid", "multiprocessing", "concurrent.futures.thread",
    "pydantic.v1", "pydantic.dataclasses", "click", "pyarrow.json", "torch.profiler._cupti_monitor",
)  # fmt: skip
# Keeps the imports from starting threads. Ray too gives its workers one OpenMP thread unless told otherwise.
_QUIET = {
    "OMP_NUM_THREADS": "1",
    "OPENBLAS_NUM_THREADS": "1",
    "JE_ARROW_MALLOC_CONF": "background_thread:false",
    "PYTORCH_NVML_BASED_CUDA_CHECK": "1",  # looking for a GPU must not initialize CUDA, which no fork survives
}


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
            process.wait(STOP_S)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()
        self.path.unlink(missing_ok=True)

    def __enter__(self) -> ForkServer:
        self.start()
        return self

    def __exit__(self, *_exc: object) -> None:
        self.stop()


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
    if isinstance(child, JobServer):
        import_ray(child.job, interpreter)
        child = Server(child.listener, 0, child.job).serve()
    if isinstance(child, Child):
        become(child, interpreter)
    else:  # a server that has nothing more to do: to take all modules apart again would cost it half a CPU-second
        os._exit(0)


if __name__ == "__main__":
    main(int(sys.argv[1]), sys.argv[2:])
