"""The process launcher with real children: what it sees of their end, and that they end with it."""

from __future__ import annotations

import os
import shlex
import signal
import subprocess
import sys
from collections.abc import Callable, Sequence
from pathlib import Path

import pytest
from chaos_kit import ROOT, watched

from chaos import launcher
from storage.history import HistoryFile, read_history
from storage.process import start_ticks


def launch(
    folder: Path, code: str, *, history: bool = True, process_group: int | None = None,
    arguments: Sequence[str] = (),
) -> subprocess.Popen[str]:
    environment = {key: value for key, value in os.environ.items() if not key.startswith("KILLPOINT_")}
    code = watched(folder) + code if history else code
    command = f"exec {launcher.py_executable()} -u -c {shlex.join([code, *arguments])}"  # as Ray does it: in a shell
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


def test_a_child_that_asks_for_nothing_is_nobodys_affair(tmp_path: Path) -> None:
    process = launch(tmp_path, "print(5)", history=False)
    assert process.communicate(timeout=20) == ("5\n", "")
    assert process.returncode == 0
    assert not list(tmp_path.glob("*.jsonl"))


def test_a_history_that_cannot_be_written_lets_the_child_run(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    process = launch(tmp_path, watched(tmp_path / "file") + "print(5)", history=False)
    out, err = process.communicate(timeout=20)
    assert (process.returncode, out) == (0, "5\n")
    assert "killpoint launcher: the end of process" in err
    assert "goes unrecorded: " in err
    assert "killpoint: the launcher does not watch process" in err


def test_a_child_serves_one_run_after_another_and_only_the_last_one_sees_its_end(tmp_path: Path) -> None:
    (first, second, third) = (tmp_path / name for name in ("first", "second", "third"))
    code = f"{watched(first)} watched(Path({str(second)!r}), '2'); released(); watched(Path({str(third)!r}), '3'); "
    process = launch(tmp_path, f"import os, signal; {code} os.kill(os.getpid(), signal.SIGKILL)", history=False)
    assert process.wait(20) == 128 + signal.SIGKILL
    for folder, last in ((first, "released"), (second, "released"), (third, "exited")):
        history = recorded(folder, process)
        assert [line.event for line in history.lines] == ["opened", "spawned", last, "closed"]
        assert history.lines[1].body["pid"] == history.lines[2].body["pid"]


def test_a_run_is_served_once_by_a_process(tmp_path: Path) -> None:
    process = launch(tmp_path, f"released(); {watched(tmp_path)} print(5)")
    out, err = process.communicate(timeout=20)
    assert (process.returncode, out) == (0, "5\n")
    assert "AlreadyExists" in err
    assert [line.event for line in recorded(tmp_path, process).lines][2] == "released"


def test_nobody_else_has_a_say(tmp_path: Path) -> None:
    """A process that is not the child cannot have its end recorded elsewhere."""
    other = "import subprocess; subprocess.run([sys.executable, '-c', sys.argv[1]], check=True)"
    process = launch(tmp_path, f"{other}; print(5)", arguments=[f"{watched(tmp_path / 'other')}"])
    out, err = process.communicate(timeout=20)
    assert (process.returncode, out) == (0, "5\n")
    assert "killpoint: the launcher does not watch process" in err
    assert not (tmp_path / "other").exists()
    assert [line.event for line in recorded(tmp_path, process).lines] == ["opened", "spawned", "exited", "closed"]


def test_it_imports_the_standard_library_only() -> None:
    code = (
        "import sys; sys.path[0] = sys.argv[1]; import chaos.launcher, storage.history; "
        "print(sorted({m.partition('.')[0] for m in sys.modules} - set(sys.stdlib_module_names)))"
    )
    done = subprocess.run(
        [sys.executable, "-S", "-E", "-c", code, str(ROOT)], capture_output=True, text=True, check=True
    )
    assert done.stdout.strip() == "['__main__', 'chaos', 'storage']"
