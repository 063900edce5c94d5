"""What Ray runs in place of its own `setup_worker.py` where this program has started Ray: a launcher at once.

Ray's script imports all of Ray (half a CPU-second) only to read one argument: the worker's runtime environment, as
JSON. Whatever is out of the ordinary there is left to Ray's script. Standard library only.
"""

from __future__ import annotations

import json
import os
import re
import sys

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

_CONTEXT, _LANGUAGE = "--serialized-runtime-env-context=", "--language="
_PLAIN = {"command_prefix", "env_vars", "py_executable", "override_worker_entrypoint", "java_jars"}


def script() -> str:
    """The file that Ray is to run."""
    return os.path.abspath(__file__)


def worker_arguments(arguments: list[str]) -> tuple[dict[str, Any], list[str]] | None:
    """The environment's context and the interpreter's arguments; None if Ray's own script has to see to it."""
    context: dict[str, Any] = {}
    rest = []
    for argument in arguments:
        if argument.startswith(_CONTEXT):
            context = json.loads(argument.removeprefix(_CONTEXT) or "{}")
        elif argument.startswith(_LANGUAGE):
            if argument != f"{_LANGUAGE}PYTHON":
                return None
        else:
            rest.append(argument)
    odd = context.get("command_prefix") or context.get("override_worker_entrypoint") or not context.keys() <= _PLAIN
    return None if odd or not rest else (context, rest)


def take_variables(variables: dict[str, str]) -> None:
    """As Ray does: `${X}` and `$X` stand for variables that are there; of others `${X}` is left out."""
    for key, value in variables.items():
        os.environ[key] = re.sub(r"\$\{[A-Z0-9_]+\}", "", os.path.expandvars(value))


def main() -> int:
    """Becomes the launcher, or the interpreter; or Ray's script, which lies beside the worker's.

    The launcher also of workers of which it was not asked, if they can be forked: Ray's own, which are slow to start.
    """
    from chaos import launcher
    from chaos.forkclient import FORKSERVER_ENV

    arguments = sys.argv[1:]
    found = worker_arguments(arguments)
    if found is not None:
        context, rest = found
        wanted = context.get("py_executable")
        if wanted in (None, sys.executable, launcher.py_executable()):
            take_variables(context.get("env_vars") or {})
            if wanted != launcher.py_executable() and not os.environ.get(FORKSERVER_ENV):
                os.execv(sys.executable, [sys.executable, *rest])
            sys.argv = [launcher.__file__, *rest]
            return launcher.main()
    return _leave_to_ray(arguments)


def _leave_to_ray(arguments: list[str]) -> int:
    worker = next(argument for argument in arguments if argument.endswith(".py"))
    theirs = os.path.join(os.path.dirname(worker), "setup_worker.py")
    os.execv(sys.executable, [sys.executable, theirs, *arguments])


if __name__ == "__main__":
    sys.path[0] = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))  # not chaos/ itself
    os._exit(main())
