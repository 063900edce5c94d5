"""Sample ids of long stretches of positions, computed ahead by a process of its own (invariant 3).

A second thread would not do: what a stretch takes is many short calls, and with each the threads hand the interpreter
to one another. The parent writes [start, limit) as two little-endian int64 to the child's stdin, the child answers on
its stdout with the sample ids of these positions, little-endian int64, in the order of the requests. It ends with its
parent's end of the pipe.
"""

from __future__ import annotations

import contextlib
import fcntl
import json
import signal
import struct
import subprocess
import sys
from collections import deque
from dataclasses import asdict
from types import TracebackType
from typing import IO

import numpy as np

from chaos.audit.heap import keep_freed
from chaos.audit.plan import Plan
from chaos.audit.segments import I64

WORTH = 1 << 23  # positions: to compute so many takes longer than to start a process
DEPTH = 3  # stretches asked for at once: one in work, two in the pipe
_PIPE_BYTES = 1 << 20
_REQUEST = struct.Struct("<qq")


class PlanAhead:
    """Sample ids of stretches of positions; what is asked for beforehand is computed meanwhile.

    Where the process does not start or has died, all is computed here: slower, and the same. A context manager.
    """

    def __init__(self, plan: Plan) -> None:
        self._plan = plan
        self._asked: deque[tuple[int, int]] = deque()
        self._child: subprocess.Popen[bytes] | None = None

    def __enter__(self) -> PlanAhead:
        program = "from chaos.audit.plan_ahead import main; main()"
        command = [sys.executable, "-P", "-c", program, json.dumps(asdict(self._plan))]
        pipe = subprocess.PIPE
        with contextlib.suppress(OSError):
            self._child = subprocess.Popen(command, stdin=pipe, stdout=pipe, stderr=subprocess.DEVNULL, bufsize=0)
            fcntl.fcntl(_there(self._child.stdout), fcntl.F_SETPIPE_SZ, _PIPE_BYTES)
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._end()

    @property
    def pid(self) -> int | None:
        """Of the process; None if there is none."""
        return None if self._child is None else self._child.pid

    def ask(self, start: int, limit: int) -> None:
        """Has the ids of start … limit − 1 computed: at most DEPTH stretches at once, each in the order of use."""
        if self._child is None or (start, limit) in self._asked or len(self._asked) == DEPTH:
            return
        try:
            _there(self._child.stdin).write(_REQUEST.pack(start, limit))
        except OSError:
            self._end()
        else:
            self._asked.append((start, limit))

    def ids(self, start: int, limit: int) -> I64:
        """Of positions start … limit − 1. What had been asked for before that is forgotten."""
        while self._asked:
            stretch = self._asked.popleft()
            ids = self._answer(stretch[1] - stretch[0])
            if stretch == (start, limit) and ids is not None:
                return ids
        return self._plan.sample_ids(np.arange(start, limit))

    def _answer(self, number: int) -> I64 | None:
        """None: the process is gone."""
        if self._child is None:
            return None
        ids = np.empty(number, "<i8")
        left = memoryview(ids.data).cast("B")
        while left:
            read = _there(self._child.stdout).readinto(left)  # type: ignore[attr-defined]
            if not read:
                self._end()
                return None
            left = left[read:]
        return ids

    def _end(self) -> None:
        child, self._child = self._child, None
        self._asked.clear()
        if child is not None:
            child.kill()  # it holds nothing; its pid is its own until it has been waited for
            with child:
                pass


def _there(stream: IO[bytes] | None) -> IO[bytes]:
    assert stream is not None
    return stream


def serve(plan: Plan, requests: IO[bytes], answers: IO[bytes]) -> None:
    """Until the requests end or nobody takes the answers."""
    keep_freed()
    with contextlib.suppress(BrokenPipeError):
        while len(request := requests.read(_REQUEST.size)) == _REQUEST.size:
            ids = plan.sample_ids(np.arange(*_REQUEST.unpack(request)))
            answers.write(ids.astype("<i8", copy=False).data.cast("B"))
            answers.flush()


def main() -> None:
    """The child: a plan's parameters as JSON in its first argument."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # meant for the parent, which ends this one
    serve(Plan(**json.loads(sys.argv[1])), sys.stdin.buffer, sys.stdout.buffer)
