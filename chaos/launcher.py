"""The witness of one worker process: sees how the process ended, and records it.

Owns the observed half of invariant 10. Ray starts it in place of the interpreter (`py_executable`) as
`python -S -E launcher.py ARGS…`; it runs `python ARGS…` and ends with the same status. The process is its child, and
it waits for it with its own `waitpid`; or, where KILLPOINT_FORKSERVER names one, a child of the fork server, which
passes the status of its own `waitpid` on. Standard library only, and what is slow happens beside the child's start.
"""

from __future__ import annotations

import os
import signal
import sys

TYPE_CHECKING = False  # `typing` costs 10 ms
if TYPE_CHECKING:
    from types import FrameType

    from chaos.forkclient import Served
    from storage.history import History

HISTORY_ENV = "KILLPOINT_HISTORY"
RUN_ENV = "KILLPOINT_RUN"
LAUNCHER_ENV = "KILLPOINT_LAUNCHER"  # the launcher's pid, for its worker: the parent may be the fork server
_FORKSERVER_ENV = "KILLPOINT_FORKSERVER"
_BLOCKED = (signal.SIGTERM, signal.SIGINT)
_PR_SET_PDEATHSIG = 1


def py_executable() -> str:
    """The shell text that Ray's runtime environment takes as `py_executable`."""
    import shlex

    return f"{shlex.quote(sys.executable)} -S -E {shlex.quote(os.path.abspath(__file__))}"


class Forked:
    """A worker that is the launcher's own child."""

    def __init__(self, mask: set[int | signal.Signals]) -> None:
        launcher = os.getpid()
        self.pid = os.fork()
        if self.pid == 0:
            _become_child(launcher, mask)

    @property
    def ticks(self) -> int | None:
        """Its start time; there even if it has ended, since it is not waited for yet."""
        from storage.process import start_ticks

        return start_ticks(self.pid)

    def release(self) -> None:
        """It has begun already, with the start of an interpreter: whoever could kill it does not know it yet."""

    def send(self, number: int) -> None:
        """Sends a signal. Not after `wait`: from then on the pid may be another process's."""
        os.kill(self.pid, number)

    def wait(self) -> int | None:
        """The wait status."""
        return os.waitpid(self.pid, 0)[1]


def main() -> int:
    """Starts the worker, records its life, returns the exit status to end with."""
    before = signal.pthread_sigmask(signal.SIG_BLOCK, _BLOCKED)
    os.environ[LAUNCHER_ENV] = str(os.getpid())
    child = _ask_fork_server(before) or Forked(before)
    _leave_process_group()
    child.release()
    _forward_sigterm_to(child)
    signal.pthread_sigmask(signal.SIG_SETMASK, before)
    return _watch(child)


def _ask_fork_server(mask: set[int | signal.Signals]) -> Served | None:
    path = os.environ.get(_FORKSERVER_ENV)
    if not path:
        return None
    from chaos.forkclient import ask

    return ask(path, sys.argv[1:], mask)


def _become_child(launcher: int, mask: set[int | signal.Signals]) -> None:
    try:
        _die_with(launcher)
        signal.pthread_sigmask(signal.SIG_SETMASK, mask)
        os.execv(sys.executable, [sys.executable, *sys.argv[1:]])
    finally:
        os._exit(127)


def _die_with(launcher: int) -> None:
    """A worker that outlived its launcher would die unseen, so the kernel kills it with the launcher."""
    import ctypes

    ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, int(signal.SIGKILL), 0, 0, 0)
    if os.getppid() != launcher:  # it was gone before prctl
        os._exit(127)


def _leave_process_group() -> None:
    """Ray kills the whole process group of a worker that died, which would take its witness along.

    The child stays in that group; the launcher, its leader, can only move to a group of the same session.
    """
    try:
        os.setpgid(0, os.getpgid(os.getppid()))
    except OSError:  # not its leader's child: nobody kills this group
        return


def _forward_sigterm_to(child: Forked | Served) -> None:
    """Ctrl-C at a terminal reaches the launcher's group: it is the supervisor's to handle, never the worker's."""

    def forward(number: int, _frame: FrameType | None) -> None:
        child.send(number)

    signal.signal(signal.SIGTERM, forward)
    signal.signal(signal.SIGINT, signal.SIG_IGN)


def _watch(child: Forked | Served) -> int:
    ticks = child.ticks
    history = _open_history(child.pid, ticks)
    status = child.wait()
    signal.signal(signal.SIGTERM, signal.SIG_IGN)
    if status is None:
        _complain(child.pid, "the fork server was gone first")
        return 1
    killed_by = os.WTERMSIG(status) if os.WIFSIGNALED(status) else None
    code = os.WEXITSTATUS(status) if killed_by is None else None
    if history is not None:
        _record_exit(history, child.pid, ticks, killed_by, code)
    return 128 + killed_by if killed_by is not None else os.WEXITSTATUS(status)


def _open_history(child: int, ticks: int | None) -> History | None:
    """None if it cannot be written: the worker works on, and what was not seen makes the verdict unknown."""
    try:
        from pathlib import Path

        from storage.history import History

        history = History.open(Path(os.environ[HISTORY_ENV]), "launcher", os.environ[RUN_ENV])
        history.record("spawned", pid=child, start_ticks=ticks)
        return history
    except Exception as error:
        _complain(child, repr(error))
        return None


def _record_exit(
    history: History, child: int, ticks: int | None, killed_by: int | None, code: int | None
) -> None:
    try:
        history.record("exited", pid=child, start_ticks=ticks, signal=killed_by, code=code)
        history.close()
    except Exception as error:
        _complain(child, repr(error))


def _complain(child: int, why: str) -> None:
    print(f"killpoint launcher: the end of process {child} goes unrecorded: {why}", file=sys.stderr)


if __name__ == "__main__":
    sys.path[0] = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))  # not chaos/ itself
    os._exit(main())
