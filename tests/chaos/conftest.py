"""What the tests of this folder share: an empty run folder, and real processes to strike."""

from __future__ import annotations

import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from chaos.hook import set_current
from storage.process import ProcessId, start_ticks, this_host


@pytest.fixture
def run_folder(tmp_path: Path) -> Path:
    """A run folder with nothing in it but its own folders."""
    for name in ("history/receipts", "history/gates", "store/log"):
        (tmp_path / name).mkdir(parents=True)
    return tmp_path


@pytest.fixture(autouse=True)
def _no_current_points() -> Iterator[None]:
    """No test sees the kill points of another one."""
    set_current(None)
    yield
    set_current(None)


@pytest.fixture
def sleeper() -> Iterator[tuple[subprocess.Popen[bytes], ProcessId]]:
    """A process that does nothing, and who it is."""
    process = subprocess.Popen([sys.executable, "-S", "-c", "import time; time.sleep(60)"])
    yield process, ProcessId(this_host(), process.pid, start_ticks(process.pid) or 0)
    process.kill()
    process.wait()


@pytest.fixture
def wait_for() -> Callable[[Callable[[], object]], None]:
    """Waits until the condition holds; fails after 20 s."""

    def wait(condition: Callable[[], object]) -> None:
        until = time.monotonic() + 20
        while not condition():
            assert time.monotonic() < until, "waited for 20 s"
            time.sleep(0.005)

    return wait
