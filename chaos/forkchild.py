"""What a forked child does to be the process that `python SCRIPT ARGS…` would have been."""

from __future__ import annotations

import atexit
import contextlib
import ctypes
import gc
import io
import os
import resource
import signal
import sys
import threading
from collections.abc import Mapping
from dataclasses import dataclass, field
from importlib.machinery import SourceFileLoader
from pathlib import Path
from types import ModuleType

from chaos.forkclient import INHERITED, Request

_PR_SET_PDEATHSIG = 1
_LIMITS = sorted({getattr(resource, name) for name in dir(resource) if name.startswith("RLIMIT_")})


@dataclass
class Interpreter:
    """What a fresh interpreter of this installation has of its own, whatever its environment says.

    paths: standard library and site-packages. added: variables that the preloaded modules have set.
    """

    paths: list[str]
    before: dict[str, str]
    added: dict[str, str] = field(default_factory=dict)

    @classmethod
    def before_preloading(cls) -> Interpreter:
        """Call it first: what is in the environment now is not the modules' doing."""
        given = _python_path(os.environ)
        paths = [path for path in sys.path[1:] if os.path.abspath(path) not in given]
        return cls(paths, dict(os.environ))

    def after_preloading(self) -> None:
        """Keeps what the modules have set: importing them in the child would set it too."""
        self.added |= {key: value for key, value in os.environ.items() if key not in self.before}

    def search_path(self, environment: Mapping[str, str], *first: str) -> list[str]:
        """`sys.path` of an interpreter with that environment."""
        return list(dict.fromkeys([*first, *_python_path(environment), *self.paths]))


@dataclass(frozen=True)
class Child:
    """One child.

    descriptors: 0, 1, 2 and the gate, at which it waits. group: the one its launcher led; Ray kills the worker's group.
    """

    request: Request
    descriptors: list[int]
    launcher: int
    group: int | None
    server: int

    def join_group(self, pid: int) -> None:
        """Called on both sides of the fork, so that it is done before either goes on.

        A group of another session cannot be joined. Then the child leads its own, and never stays in the server's:
        whoever kills a worker's group must not meet the process that started the server there.
        """
        with contextlib.suppress(OSError):
            if self.group is not None:
                os.setpgid(pid, self.group)
                return
        with contextlib.suppress(OSError):
            os.setpgid(pid, pid)


def become(child: Child, interpreter: Interpreter) -> None:
    """Runs the script. Its exceptions and its exit are this process's own."""
    request = child.request
    die_with(child.server)
    child.join_group(0)
    _take_limits(child.launcher)
    for number in INHERITED:
        usual = signal.default_int_handler if number == signal.SIGINT else signal.SIG_DFL
        signal.signal(number, signal.SIG_IGN if number in request.ignored else usual)
    for target, descriptor in enumerate(child.descriptors[:3]):
        os.dup2(descriptor, target)
        os.close(descriptor)
    os.chdir(request.folder)
    os.umask(request.umask)
    _take_environment(request.environment, interpreter)
    _open_streams(request.unbuffered or bool(request.environment.get("PYTHONUNBUFFERED")))
    _settle_libraries(request.environment)
    signal.pthread_sigmask(signal.SIG_SETMASK, request.blocked)
    gc.enable()
    os.read(child.descriptors[3], 1)  # until the launcher, or its end, closes the pipe
    os.close(child.descriptors[3])
    _run(request.arguments, interpreter)


def die_with(server: int) -> None:
    """The end of a child that outlived the server would be seen by nobody."""
    ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, int(signal.SIGKILL), 0, 0, 0)
    if os.getppid() != server:
        os._exit(127)


def _take_limits(launcher: int) -> None:
    """What processes inherit. Ray's node process sets some of it, and the server was not started by it."""
    with contextlib.suppress(OSError):
        os.setpriority(os.PRIO_PROCESS, 0, os.getpriority(os.PRIO_PROCESS, launcher))
    with contextlib.suppress(OSError):
        badness = Path(f"/proc/{launcher}/oom_score_adj").read_text("ascii")
        Path("/proc/self/oom_score_adj").write_text(badness, "ascii")
    for limit in _LIMITS:
        with contextlib.suppress(OSError, ValueError):
            resource.setrlimit(limit, resource.prlimit(launcher, limit))


def _take_environment(environment: dict[str, str], interpreter: Interpreter) -> None:
    os.environ.clear()
    os.environ.update({**interpreter.added, **environment})


def _open_streams(unbuffered: bool) -> None:
    """Standard output and error as at the start of an interpreter: whether they are a terminal is known only now."""
    for name, number in (("stdout", 1), ("stderr", 2)):
        old: io.TextIOWrapper = getattr(sys, name)
        raw = io.FileIO(number, "w", closefd=False)
        lines = not unbuffered and (number == 2 or raw.isatty())
        buffer = raw if unbuffered else io.BufferedWriter(raw)
        new = io.TextIOWrapper(
            buffer,  # raw, as with -u
            encoding=old.encoding, errors=old.errors, line_buffering=lines, write_through=unbuffered,
        )  # fmt: skip
        setattr(sys, name, new)
        setattr(sys, f"__{name}__", new)


def _settle_libraries(environment: dict[str, str]) -> None:
    """What libraries draw or read when they are imported, which here was long ago. `random` sees to itself."""
    numpy, torch = sys.modules.get("numpy"), sys.modules.get("torch")
    if numpy is not None:
        numpy.random.seed()
    threads = environment.get("OMP_NUM_THREADS", "")
    if torch is not None and threads.isdecimal() and int(threads):
        torch.set_num_threads(int(threads))


def _run(arguments: list[str], interpreter: Interpreter) -> None:
    script = arguments[0]
    sys.argv, sys.orig_argv = list(arguments), [sys.executable, *arguments]
    folder = os.path.dirname(os.path.realpath(script))
    sys.path[:] = interpreter.search_path(os.environ, folder)
    main = ModuleType("__main__")
    loader = SourceFileLoader("__main__", script)
    vars(main).update(__file__=script, __loader__=loader, __cached__=None, __builtins__=__builtins__)
    sys.modules["__main__"] = main
    with io.open_code(os.path.abspath(script)) as file:
        code = compile(file.read(), script, "exec", dont_inherit=True)
    try:
        exec(code, vars(main))
    except SystemExit as ended:
        if not (ended.code is None or isinstance(ended.code, int)):
            raise
        _leave(ended.code or 0)
    _leave(0)


def _leave(status: int) -> None:
    """What the end of an interpreter does that others can see. To take all modules apart costs half a CPU-second.

    As `multiprocessing` ends its own forked children. An exception is left to the interpreter.
    """
    threading._shutdown()  # type: ignore[attr-defined]
    atexit._run_exitfuncs()
    for stream in (sys.stdout, sys.stderr):
        with contextlib.suppress(OSError, ValueError):
            stream.flush()
    os._exit(status & 0xFF)


def _python_path(environment: Mapping[str, str]) -> list[str]:
    """The entries of PYTHONPATH as an interpreter takes them: absolute, an empty one for the working folder."""
    value = environment.get("PYTHONPATH", "")
    return [os.path.abspath(entry) for entry in value.split(os.pathsep)] if value else []
