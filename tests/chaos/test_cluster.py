"""Ray as this command uses it: silent on standard output, launchers as parents, gone at the end."""

from __future__ import annotations

import importlib
import inspect
import json
import os
import re
import subprocess
import sys
from pathlib import Path

import psutil
import pytest

from chaos import launcher
from chaos.cluster import ray_cluster, set_up_workers, stdout_on_stderr
from chaos.errors import RayUnreachable
from chaos.interrupts import Interrupts

ROOT = Path(__file__).resolve().parents[2]
PROGRAM = """
import os, json, signal, sys
import psutil
from chaos.cluster import ray_cluster
from chaos.interrupts import Interrupts
from chaos.launcher import py_executable
from pathlib import Path
from trainers.witness import watched

with Interrupts() as interrupts:
    before = signal.getsignal(signal.SIGTERM)
    with ray_cluster(5, interrupts):
        import ray

        class Worker:
            def __init__(self, folder=None):
                if folder:
                    watched(Path(folder), "run")
            def pid(self):
                return os.getpid()

        environment = {"py_executable": py_executable()}
        worker = ray.remote(Worker).options(runtime_env=environment).remote(sys.argv[1])
        pid = ray.get(worker.pid.remote())
        os.kill(pid, signal.SIGKILL)
        try:
            ray.get(worker.pid.remote())
        except ray.exceptions.RayActorError:
            pass
        kept = signal.getsignal(signal.SIGTERM) == before
        cpus = ray.cluster_resources()["CPU"]
        children = psutil.Process().children(recursive=True)
        started = [child.pid for child in children]
        session = ray._private.worker._global_node.get_session_dir_path()
        for child in children:
            child.send_signal(signal.SIGHUP)  # as a terminal that closes does
        after = ray.get(ray.remote(Worker).options(runtime_env=environment).remote().pid.remote(), timeout=60)
        there = os.path.isdir(session)
print(json.dumps({"pid": pid, "cpus": cpus, "handler_kept": kept, "started": started, "after": after,
                  "sessions": [there, os.path.isdir(session)]}))
"""


def test_ray_with_a_launcher_is_silent_and_leaves_nothing(tmp_path: Path) -> None:
    done = subprocess.run(
        [sys.executable, "-c", PROGRAM, str(tmp_path)], capture_output=True, text=True, timeout=120,
        env={**os.environ, "PYTHONPATH": str(ROOT)},
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    result = json.loads(done.stdout)  # nothing else
    assert result["cpus"] >= 5
    assert result["handler_kept"]
    assert len(result["started"]) > 3
    assert result["after"] not in (0, result["pid"])
    assert result["sessions"] == [True, False]
    assert [pid for pid in result["started"] if psutil.pid_exists(pid)] == []
    bodies = [
        json.loads(line)["body"]
        for path in tmp_path.glob("launcher-*")
        for line in path.read_text().splitlines()
    ]
    (exited,) = [body for body in bodies if body["event"] == "exited" and body["pid"] == result["pid"]]
    assert (exited["signal"], exited["code"]) == (9, None)


def test_the_private_name_that_silences_ray_is_there() -> None:
    worker = importlib.import_module("ray._private.worker")
    source = inspect.getsource(worker)  # what is in the module may have been silenced by another test
    assert re.search(r"^def print_to_stdstream\(data\b[^)]*, ignore_prefix\b", source, re.MULTILINE)
    assert "print_to_stdstream" in inspect.getsource(worker.connect)


def test_ray_runs_in_its_workers_what_it_is_told_to(monkeypatch: pytest.MonkeyPatch) -> None:
    """A private name: an absolute path in it has to end up as the path that Ray's node process is given."""
    constants, node = (importlib.import_module(f"ray._private.{name}") for name in ("ray_constants", "node"))
    monkeypatch.setattr(constants, "SETUP_WORKER_FILENAME", "setup_worker.py")
    set_up_workers()
    assert Path(constants.SETUP_WORKER_FILENAME).is_absolute()
    found = inspect.getsource(node.Node.__init__)
    assert re.search(r"setup_worker_path=os\.path\.join\([^=]*ray_constants\.SETUP_WORKER_FILENAME,\s*\)", found)


@pytest.mark.parametrize(
    ("address", "reason"),
    [
        ("127.0.0.1:1", "Connection refused"),
        ("ray://[::1]:1/x", r".+"),
        ("auto", "Could not connect"),
    ],
)
def test_an_address_that_does_not_answer(monkeypatch: pytest.MonkeyPatch, address: str, reason: str) -> None:
    ray = importlib.import_module("ray")

    def refuse(**options: object) -> None:
        assert options["address"] == "auto"
        raise ConnectionError("Could not connect\nand much more")

    monkeypatch.setenv("RAY_ADDRESS", address)
    monkeypatch.setattr(ray, "init", refuse)
    monkeypatch.setattr(ray, "is_initialized", lambda: False)
    with pytest.raises(RayUnreachable) as caught, ray_cluster(1, Interrupts()):
        pass
    assert re.fullmatch(rf"no Ray at RAY_ADDRESS={re.escape(address)}: {reason}", str(caught.value))


def test_a_cluster_of_the_callers_own_is_kept(monkeypatch: pytest.MonkeyPatch) -> None:
    ray = importlib.import_module("ray")
    monkeypatch.setattr(ray, "is_initialized", lambda: True)
    monkeypatch.setattr(ray, "shutdown", lambda: pytest.fail("shut down"))
    with ray_cluster(1, Interrupts()):
        pass


def test_standard_output_of_any_language_goes_to_standard_error(capfd: pytest.CaptureFixture[str]) -> None:
    with stdout_on_stderr():
        os.write(1, b"from C\n")
        print("from Python", flush=True)
    print("result")
    out, err = capfd.readouterr()
    assert out == "result\n"
    assert "from C\n" in err
    assert "from Python\n" in err


def test_the_launchers_command_survives_a_shell() -> None:
    assert launcher.py_executable().split()[1:3] == ["-S", "-E"]


@pytest.mark.parametrize("delay_s", [1.3])
def test_sigterm_while_ray_starts_is_an_interrupt_in_order(delay_s: float, tmp_path: Path) -> None:
    """Whenever it comes: Ray puts its own handler in place of ours halfway."""
    code = (
        "import os, signal, sys, threading\n"
        "from chaos.cluster import ray_cluster\n"
        "from chaos.interrupts import Interrupts\n"
        "with Interrupts() as interrupts:\n"
        "    import ray\n"
        f"    threading.Timer({delay_s}, os.kill, (os.getpid(), signal.SIGTERM)).start()\n"
        "    try:\n"
        "        with ray_cluster(2, interrupts):\n"
        "            threading.Event().wait(60)\n"
        "    except KeyboardInterrupt:\n"
        "        print(interrupts.signal.name)\n"
    )
    done = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, timeout=120,
        env={**os.environ, "PYTHONPATH": str(ROOT)},
    )  # fmt: skip
    assert (done.returncode, done.stdout) == (0, "SIGTERM\n"), done.stderr
