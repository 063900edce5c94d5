"""Sample ids of long stretches of positions, computed ahead by a process of its own (invariant 3).

A second thread would not do: what a stretch takes is many short calls, and with each the threads hand the interpreter
to one another. The parent writes [start, limit) as two little-endian int64 to the child's stdin. The child answers in
the order of the requests, on a pipe of its own, since what is imported may print: the same two numbers, then the sample
ids of these positions, little-endian int64. It ends with its parent's end of the pipes.
"""

from __future__ import annotations

import contextlib
import fcntl
import io
import json
import os
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
_STRETCH = struct.Struct("<qq")
_GREATEST = (1 << 63) - 1
# With `-I` it has the parent's search path and nothing else, so it imports the same modules.
_PROGRAM = "import json, sys; sys.path[:] = json.loads(sys.argv[1]); from chaos.audit.plan_ahead import main; main()"


class PlanAhead:
    """Sample ids of stretches of positions; what is asked for beforehand is computed meanwhile.

    Where the process does not start or has died, all is computed here: slower, and the same. A context manager.
    """

    def __init__(self, plan: Plan) -> None:
        self._plan = plan
        self._asked: deque[tuple[int, int]] = deque()
        self._depth = DEPTH  # less after stretches that were asked for in vain
        self._child: subprocess.Popen[bytes] | None = None
        self._answers: io.FileIO | None = None

    def __enter__(self) -> PlanAhead:
        try:
            self._start()
        except BaseException:
            self._end()
            raise
        return self

    def _start(self) -> None:
        if not sys.executable:
            return
        mine, its = os.pipe()
        self._answers = io.FileIO(mine)
        path = json.dumps([os.path.abspath(place) for place in sys.path])
        arguments = [path, json.dumps(asdict(self._plan)), str(its), __file__]
        try:
            with contextlib.suppress(OSError):
                self._child = subprocess.Popen(
                    [sys.executable, "-I", "-c", _PROGRAM, *arguments], pass_fds=[its], bufsize=0,
                    stdin=subprocess.PIPE, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL,
                )  # fmt: skip
                fcntl.fcntl(mine, fcntl.F_SETPIPE_SZ, _PIPE_BYTES)
        finally:
            os.close(its)

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
        if self._child is None or (start, limit) in self._asked or len(self._asked) >= self._depth:
            return
        if limit > _GREATEST:
            return
        try:
            _there(self._child.stdin).write(_STRETCH.pack(start, limit))
        except OSError:
            self._end()
        else:
            self._asked.append((start, limit))

    def ids(self, start: int, limit: int) -> I64:
        """Of positions start … limit − 1. What had been asked for before that is forgotten."""
        found = None
        if (start, limit) not in self._asked:
            if self._asked:
                self._depth = 1
            found = self._plan.sample_ids(np.arange(start, limit))
        while self._asked:
            stretch = self._asked.popleft()
            ids = self._answer(*stretch)
            if stretch == (start, limit):
                self._depth = min(self._depth + 1, DEPTH)
                found = ids
                break
        return self._plan.sample_ids(np.arange(start, limit)) if found is None else found

    def _answer(self, start: int, limit: int) -> I64 | None:
        """None: the process is gone, or it has answered something else, and is ended."""
        head = bytearray(_STRETCH.size)
        ids = np.empty(limit - start, "<i8")
        if self._fill(memoryview(head)) and _STRETCH.unpack(head) == (start, limit) and self._fill(ids.data.cast("B")):
            return ids
        self._end()
        return None

    def _fill(self, buffer: memoryview) -> bool:
        while buffer:
            read = 0 if self._answers is None else self._answers.readinto(buffer)
            if not read:
                return False
            buffer = buffer[read:]
        return True

    def _end(self) -> None:
        child, self._child = self._child, None
        answers, self._answers = self._answers, None
        self._asked.clear()
        if answers is not None:
            answers.close()
        if child is not None:
            child.kill()  # it holds nothing; its pid is its own until it has been waited for
            with child:
                pass


def _there(stream: IO[bytes] | None) -> IO[bytes]:
    assert stream is not None
    return stream


def serve(plan: Plan, requests: IO[bytes], answers: IO[bytes]) -> None:
    """Until the requests end or nobody takes the answers. answers: buffered, so that nothing is written in part."""
    keep_freed()
    with contextlib.suppress(BrokenPipeError):
        while len(request := requests.read(_STRETCH.size)) == _STRETCH.size:
            ids = plan.sample_ids(np.arange(*_STRETCH.unpack(request)))
            answers.write(request)
            answers.write(ids.astype("<i8", copy=False).data.cast("B"))
            answers.flush()


def main() -> None:
    """The child. Arguments: search path, a plan's parameters (both JSON), where to answer, the parent's own file.

    Where it would compute with other code than its parent it does nothing.
    """
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # meant for the parent, which ends this one
    _, plan, answers, file = sys.argv[1:]
    if __file__ == file:
        with open(0, "rb", closefd=False) as requests, open(int(answers), "wb") as told:
            serve(Plan(**json.loads(plan)), requests, told)
