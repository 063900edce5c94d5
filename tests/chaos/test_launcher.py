"""The process launcher with real children: what it sees of their end, and that they end with it."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from chaos import launcher
from storage.history import HistoryFile, read_history
from storage.process import start_ticks

ROOT = Path(__file__).resolve().parents[2]


def launch(folder: Path, code: str, *, history: bool = True, process_group: int | None = None) -> subprocess.Popen[str]:
    environment = {key: value for key, value in os.environ.items() if not key.startswith("KILLPOINT_")}
    if history:
        environment |= {launcher.HISTORY_ENV: str(folder), launcher.RUN_ENV: "run"}
    command = f"exec {launcher.py_executable()} -u -c '{code}'"  # as Ray does it: in a shell
    return subprocess.Popen(
        command,
        shell=True,
        text=True,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        env=environment,
        cwd=folder,
        process_group=process_group,
    )


def recorded(folder: Path, process: subprocess.Popen[str]) -> HistoryFile:
    (path,) = folder.glob(f"launcher-*-{process.pid}-*.jsonl")
    return read_history(path)


def child_of(process: subprocess.Popen[str]) -> int:
    assert process.stdout is not None
    return int(process.stdout.readline())


Wait = Callable[[Callable[[], object]], None]
PRINT_PID = "import os, signal, sys, time; print(os.getpid(), flush=True); "


@pytest.mark.parametrize("code", [0, 3])
def test_an_exit_code_is_recorded_and_passed_on(tmp_path: Path, code: int) -> None:
    process = launch(tmp_path, f"{PRINT_PID} sys.exit({code})")
    child = child_of(process)
    assert process.wait(20) == code
    lines = recorded(tmp_path, process).lines
    assert [line.event for line in lines] == ["opened", "spawned", "exited", "closed"]
    assert lines[0].body["role"] == "launcher"
    assert lines[1].body["pid"] == lines[2].body["pid"] == child
    assert lines[1].body["start_ticks"] == lines[2].body["start_ticks"] is not None
    assert (lines[2].body["signal"], lines[2].body["code"]) == (None, code)


def test_a_killed_child_is_seen_to_die_of_its_signal(tmp_path: Path) -> None:
    process = launch(tmp_path, f"{PRINT_PID} time.sleep(60)")
    child = child_of(process)
    ticks = start_ticks(child)
    os.kill(child, signal.SIGKILL)
    assert process.wait(20) == 128 + signal.SIGKILL
    exited = recorded(tmp_path, process).lines[2].body
    assert (exited["pid"], exited["start_ticks"]) == (child, ticks)
    assert (exited["signal"], exited["code"]) == (signal.SIGKILL, None)


def test_sigterm_is_forwarded_and_the_terminals_interrupt_is_not(tmp_path: Path) -> None:
    handlers = "; ".join(f"signal.signal({n}, lambda *_: sys.exit({n}))" for n in (2, 15))
    process = launch(tmp_path, f"{PRINT_PID}{handlers}; print(1, flush=True); time.sleep(60)")
    child_of(process)
    child_of(process)  # its handlers are there
    process.send_signal(signal.SIGINT)
    process.send_signal(signal.SIGTERM)
    assert process.wait(20) == 15
    assert recorded(tmp_path, process).lines[2].body["code"] == 15


def test_it_leaves_the_process_group_of_its_child(tmp_path: Path) -> None:
    """Ray kills the group of a dead worker, and must not take its only witness along."""
    process = launch(tmp_path, f"{PRINT_PID} time.sleep(60)", process_group=0)
    child = child_of(process)
    assert os.getpgid(child) == process.pid
    os.killpg(process.pid, signal.SIGKILL)
    assert process.wait(20) == 128 + signal.SIGKILL
    assert recorded(tmp_path, process).lines[2].body["signal"] == signal.SIGKILL


def test_the_child_dies_with_a_killed_launcher(tmp_path: Path, wait_for: Wait) -> None:
    process = launch(tmp_path, f"{PRINT_PID} time.sleep(60)")
    child = child_of(process)
    wait_for(lambda: any("spawned" in path.read_text() for path in tmp_path.glob("launcher-*")))
    process.kill()
    wait_for(lambda: start_ticks(child) is None)
    assert not recorded(tmp_path, process).closed


def test_the_child_runs_without_a_history(tmp_path: Path) -> None:
    process = launch(tmp_path, "print(5)", history=False)
    out, err = process.communicate(timeout=20)
    assert (process.returncode, out) == (0, "5\n")
    assert "killpoint launcher: the end of process" in err
    assert "goes unrecorded: KeyError('KILLPOINT_HISTORY')" in err


def test_it_imports_the_standard_library_only() -> None:
    code = (
        "import sys; sys.path[0] = sys.argv[1]; import chaos.launcher, storage.history; "
        "print(sorted({m.partition('.')[0] for m in sys.modules} - set(sys.stdlib_module_names)))"
    )
    done = subprocess.run(
        [sys.executable, "-S", "-E", "-c", code, str(ROOT)], capture_output=True, text=True, check=True
    )
    assert done.stdout.strip() == "['__main__', 'chaos', 'storage']"
