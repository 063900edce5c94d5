"""The parent of one worker process: sees how the process ended, and has it recorded (`witness.py`).

Serves invariant 10. Ray starts it in place of the interpreter (`py_executable`) as `python -S -E launcher.py ARGS…`;
it runs `python ARGS…` and ends with the same status. The process is its child, and it waits for it with its own
`waitpid`; or, where KILLPOINT_FORKSERVER names one, a child of the fork server, which passes the status of its own
`waitpid` on. Standard library only.
"""

from __future__ import annotations

import os
import signal
import sys

TYPE_CHECKING = False  # `typing` costs 10 ms
if TYPE_CHECKING:
    from types import FrameType

    from chaos.forkclient import Served
    from chaos.witness import Witness

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
        from storage.process import start_ticks

        self._descriptor = os.pidfd_open(self.pid)
        self.ticks = start_ticks(self.pid)  # there even if it has ended, since it is not waited for yet

    def release(self) -> None:
        """It has begun already, with the start of an interpreter: whoever could kill it does not know it yet."""

    def send(self, number: int) -> None:
        """Sends a signal. Not after `wait`: from then on the pid may be another process's."""
        os.kill(self.pid, number)

    def fileno(self) -> int:
        """A pidfd: readable when it has ended."""
        return self._descriptor

    def wait(self) -> int | None:
        """The wait status."""
        return os.waitpid(self.pid, 0)[1]


def main() -> int:
    """Starts the worker, records its life, returns the exit status to end with."""
    from chaos.witness import Witness

    before = signal.pthread_sigmask(signal.SIG_BLOCK, _BLOCKED)
    os.environ[LAUNCHER_ENV] = str(os.getpid())
    witness = Witness()
    child = _ask_fork_server(before) or Forked(before)
    _leave_process_group()
    child.release()
    _forward_sigterm_to(child)
    signal.pthread_sigmask(signal.SIG_SETMASK, before)
    return _watch(child, witness)


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


def _watch(child: Forked | Served, witness: Witness) -> int:
    from chaos.witness import complain

    witness.attend(child)
    status = child.wait()
    signal.signal(signal.SIGTERM, signal.SIG_IGN)
    if status is None:
        complain(child.pid, "the fork server was gone first")
        return 1
    killed_by = os.WTERMSIG(status) if os.WIFSIGNALED(status) else None
    code = os.WEXITSTATUS(status) if killed_by is None else None
    witness.ended(child, killed_by, code)
    return 128 + killed_by if killed_by is not None else os.WEXITSTATUS(status)


if __name__ == "__main__":
    sys.path[0] = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))  # not chaos/ itself
    os._exit(main())
