"""How a forked child ends: what an interpreter's end shows to others, it shows too."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from test_forkserver import launch

from chaos.forkserver import ForkServer

BEGIN = "import atexit, os, signal, sys, threading, time; sys.stdout.write('written, '); "
BUFFERED = {"PYTHONUNBUFFERED": ""}
ENDS = {
    "handlers and a thread": "atexit.register(print, 'first'); atexit.register(print, 'last'); "
    "threading.Thread(target=lambda: [time.sleep(0.1), print('a thread was waited for')]).start()",
    "number": "sys.exit(256 + 7)",
    "text": "atexit.register(print, 'handled'); sys.exit('why')",
    "exception": "atexit.register(print, 'handled'); raise LookupError('why')",
}


@pytest.fixture(scope="module")
def server() -> Iterator[ForkServer]:
    with ForkServer(preload=["json"]) as server:
        yield server


@pytest.mark.parametrize("end", ENDS)
def test_it_ends_as_an_interpreter_does(end: str, tmp_path: Path, server: ForkServer) -> None:
    both = [launch(tmp_path, BEGIN + ENDS[end], path, watch=False, env=BUFFERED) for path in (None, server.path)]
    plain, forked = ((*each.communicate(timeout=20), each.returncode) for each in both)
    assert forked[::2] == plain[::2]  # what it wrote to standard output, and its status
    assert forked[1].splitlines()[-1:] == plain[1].splitlines()[-1:]  # a traceback has more frames above


@pytest.mark.parametrize("end", ["", "sys.exit(0)"])  # the last is how Ray's workers end
def test_it_does_not_take_its_modules_apart(end: str, tmp_path: Path, server: ForkServer) -> None:
    code = "import sys\nclass Late:\n    def __del__(self):\n        print('taken apart')\nsys.modules['late'] = Late()"
    both = [launch(tmp_path, f"{code}\n{end}", path, watch=False, env=BUFFERED) for path in (None, server.path)]
    assert [each.communicate(timeout=20)[0] for each in both] == ["taken apart\n", ""]
