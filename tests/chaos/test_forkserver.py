"""The fork server with real processes: a child is what python would have been, and nobody outlives whom it must not."""

from __future__ import annotations

import json
import os
import signal
import socket
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import psutil
import pytest
from chaos_kit import ROOT, watched

from chaos import launcher
from chaos.forkclient import FORKSERVER_ENV, LENGTH
from chaos.forkserver import ForkServer
from storage.history import HistoryFile, read_history
from storage.process import start_ticks

Wait = Callable[[Callable[[], object]], None]
PRINT_PID = "import os, signal, sys, time; print(os.getpid(), flush=True)"
SLEEP = f"{PRINT_PID}; time.sleep(60)"
WHAT = """
import json, os, resource, signal, sys
WHO = 1
print(json.dumps({
    "argv": sys.argv, "path": sys.path, "file": __file__, "name": __name__, "folder": os.getcwd(),
    "environment": dict(os.environ), "umask": os.umask(0), "mask": sorted(signal.pthread_sigmask(0, [])),
    "handlers": [str(signal.getsignal(n)) for n in (signal.SIGINT, signal.SIGTERM, signal.SIGPIPE)],
    "files": sorted(int(f) for f in os.listdir("/proc/self/fd"))[:3],
    "limit": resource.getrlimit(resource.RLIMIT_NOFILE),
    "threads": len(os.listdir("/proc/self/task")), "oom": open("/proc/self/oom_score_adj").read(),
    "nice": os.nice(0), "input": sys.stdin.read(),
    "main": sys.modules["__main__"].WHO, "errors": [s.errors for s in (sys.stdin, sys.stdout, sys.stderr)],
    "lines": [(s.line_buffering, s.write_through) for s in (sys.stdout, sys.stderr)], "encoding": sys.stdout.encoding,
}))
print("to standard error", file=sys.stderr)
"""


@pytest.fixture
def server(tmp_path: Path) -> Iterator[ForkServer]:
    """One that imports nothing: what is asked of it here does not depend on it."""
    with ForkServer(preload=["json"]) as server:
        yield server


def launch(
    folder: Path, code: str, socket_path: Path | None, option: str = "", *arguments: str, watch: bool = True,
    **more: Any,
) -> subprocess.Popen[str]:
    """Starts the launcher on a script as Ray does it: in a shell."""
    script = folder / "below" / "script.py"
    script.parent.mkdir(exist_ok=True)
    script.write_text(watched(folder) + "\n" + code if watch else code)
    environment = {key: value for key, value in os.environ.items() if not key.startswith("KILLPOINT_")}
    environment |= more.pop("env", {})
    if socket_path is not None:
        environment[FORKSERVER_ENV] = str(socket_path)
    command = f"exec {launcher.py_executable()} {' '.join([option, str(script), *arguments])}"
    return subprocess.Popen(
        command, shell=True, text=True, stdout=subprocess.PIPE, stderr=subprocess.PIPE, env=environment, cwd=folder,
        **more,
    )  # fmt: skip


def recorded(folder: Path, process: subprocess.Popen[str]) -> HistoryFile:
    (path,) = folder.glob(f"launcher-*-{process.pid}-*.jsonl")
    return read_history(path)


def spawned(folder: Path) -> bool:
    return any("spawned" in path.read_text() for path in folder.glob("launcher-*"))


def child_of(process: subprocess.Popen[str]) -> int:
    assert process.stdout is not None
    return int(process.stdout.readline())


def stop(process: subprocess.Popen[str]) -> None:
    process.kill()
    process.communicate(timeout=20)


def answers(folder: Path, socket_path: Path | None, *options: str) -> dict[str, Any]:
    odd = {"KILLPOINT_ODD": "a\nb=\udcff", "PYTHONPATH": f"relative{os.pathsep}{ROOT}"}
    process = launch(folder, WHAT, socket_path, *options, watch=False, env=odd, stdin=subprocess.PIPE, umask=0o27)
    out, err = process.communicate("typed", timeout=20)
    assert process.returncode == 0, err
    assert err == "to standard error\n"
    found: dict[str, Any] = json.loads(out)
    for name in ("KILLPOINT_LAUNCHER", "KILLPOINT_WITNESS", FORKSERVER_ENV, "_"):
        found["environment"].pop(name, None)
    return found


@pytest.mark.parametrize("option", ["", "-u"])
def test_a_forked_child_is_what_python_would_have_been(tmp_path: Path, server: ForkServer, option: str) -> None:
    options = (option, "one", "'two  words'")
    plain, forked = answers(tmp_path, None, *options), answers(tmp_path, server.path, *options)
    assert forked == plain
    assert forked["argv"][1:] == ["one", "two  words"]
    assert (forked["folder"], forked["umask"], forked["input"]) == (str(tmp_path), 0o27, "typed")
    assert forked["environment"]["KILLPOINT_ODD"] == "a\nb=\udcff"
    assert forked["path"][:3] == [str(tmp_path / "below"), str(tmp_path / "relative"), str(ROOT)]


def test_what_a_shell_in_the_background_has_ignored_is_ignored_by_a_child(tmp_path: Path, server: ForkServer) -> None:
    before = signal.signal(signal.SIGINT, signal.SIG_IGN)
    try:
        plain, forked = answers(tmp_path, None), answers(tmp_path, server.path)
    finally:
        signal.signal(signal.SIGINT, before)
    assert forked["handlers"] == plain["handlers"]
    assert plain["handlers"][0] == str(int(signal.SIG_IGN))


@pytest.mark.parametrize(
    ("end", "code", "killed_by", "says"),
    [
        ("sys.exit(3)", 3, None, ""),
        ("pass", 0, None, ""),
        ("os.kill(os.getpid(), signal.SIGKILL)", None, signal.SIGKILL, ""),
        ("1 / 0", 1, None, "ZeroDivisionError: division by zero"),
    ],
)
def test_how_it_ended_is_recorded_and_passed_on(
    tmp_path: Path, server: ForkServer, end: str, code: int | None, killed_by: int | None, says: str
) -> None:
    process = launch(tmp_path, f"{PRINT_PID}; {end}", server.path)
    out, err = process.communicate(timeout=20)
    assert says in err
    assert process.returncode == (code if killed_by is None else 128 + killed_by)
    lines = recorded(tmp_path, process).lines
    assert [line.event for line in lines] == ["opened", "spawned", "exited", "closed"]
    assert lines[1].body["pid"] == lines[2].body["pid"] == int(out)
    assert lines[1].body["start_ticks"] == lines[2].body["start_ticks"] is not None
    assert (lines[2].body["signal"], lines[2].body["code"]) == (killed_by, code)


def test_its_parent_is_the_server_and_its_group_the_launchers(tmp_path: Path, server: ForkServer) -> None:
    """Ray kills the group of a dead worker, and must not take its only witness along."""
    process = launch(tmp_path, SLEEP, server.path, process_group=0)
    child = psutil.Process(child_of(process))
    assert (child.ppid(), os.getpgid(child.pid)) == (server.pid, process.pid)
    os.killpg(process.pid, signal.SIGKILL)
    assert process.wait(20) == 128 + signal.SIGKILL
    assert recorded(tmp_path, process).lines[2].body["signal"] == signal.SIGKILL


def test_in_another_session_it_has_a_group_of_its_own(tmp_path: Path, server: ForkServer) -> None:
    process = launch(tmp_path, SLEEP, server.path, start_new_session=True)
    child = child_of(process)
    assert os.getpgid(child) == child
    stop(process)


def test_sigterm_is_forwarded_and_the_terminals_interrupt_is_not(tmp_path: Path, server: ForkServer) -> None:
    handlers = "; ".join(f"signal.signal({n}, lambda *_: sys.exit({n}))" for n in (2, 15))
    process = launch(tmp_path, f"import signal, sys; {handlers}; {SLEEP}", server.path)
    child_of(process)
    process.send_signal(signal.SIGINT)
    process.send_signal(signal.SIGTERM)
    assert process.wait(20) == 15
    assert recorded(tmp_path, process).lines[2].body["code"] == 15


@pytest.mark.parametrize("stopped", [False, True])
def test_the_child_dies_with_a_killed_launcher(
    tmp_path: Path, server: ForkServer, wait_for: Wait, stopped: bool
) -> None:
    process = launch(tmp_path, SLEEP, server.path)
    child = child_of(process)
    if stopped:
        os.kill(child, signal.SIGSTOP)
    wait_for(lambda: spawned(tmp_path))
    stop(process)
    wait_for(lambda: start_ticks(child) is None)
    assert not recorded(tmp_path, process).closed


def test_children_die_with_a_killed_server_and_their_ends_stay_unknown(
    tmp_path: Path, server: ForkServer, wait_for: Wait
) -> None:
    process = launch(tmp_path, SLEEP, server.path)
    child = child_of(process)
    wait_for(lambda: spawned(tmp_path))
    assert server.pid is not None
    os.kill(server.pid, signal.SIGKILL)
    _out, err = process.communicate(timeout=20)
    assert process.returncode == 1
    assert f"the end of process {child} goes unrecorded: the fork server was gone first" in err
    wait_for(lambda: start_ticks(child) is None)
    assert [line.event for line in recorded(tmp_path, process).lines] == ["opened", "spawned"]


def test_a_stopped_server_ends_its_children_and_their_ends_are_recorded(tmp_path: Path) -> None:
    server = ForkServer(preload=[])
    server.start()
    process = launch(tmp_path, SLEEP, server.path)
    child_of(process)
    server.stop()
    server.stop()
    assert process.wait(20) == 128 + signal.SIGKILL
    assert recorded(tmp_path, process).closed
    assert not server.path.exists()


def test_the_server_dies_with_a_killed_starter(tmp_path: Path, wait_for: Wait) -> None:
    code = "import sys, time; from chaos.forkserver import ForkServer; s = ForkServer(preload=[]); s.start(); "
    code += "print(s.pid, s.path, flush=True); time.sleep(60)"
    starter = subprocess.Popen([sys.executable, "-c", code], stdout=subprocess.PIPE, text=True, cwd=ROOT)
    assert starter.stdout is not None
    pid, path = starter.stdout.readline().split()
    process = launch(tmp_path, SLEEP, Path(path))
    child_of(process)
    stop(starter)
    wait_for(lambda: start_ticks(int(pid)) is None)
    assert process.wait(20) == 128 + signal.SIGKILL
    assert not Path(path).exists()


def test_without_a_living_server_python_is_started(tmp_path: Path) -> None:
    path = tmp_path / "s"
    with socket.socket(socket.AF_UNIX) as listener:
        listener.bind(str(path))  # and nobody listens
    process = launch(tmp_path, f"{PRINT_PID}; sys.exit(7)", path)
    _out, err = process.communicate(timeout=20)
    assert process.returncode == 7
    assert f"no fork server at {path}" in err
    assert recorded(tmp_path, process).lines[2].body["code"] == 7


def test_what_a_running_interpreter_cannot_do_is_left_to_python(tmp_path: Path, server: ForkServer) -> None:
    process = launch(tmp_path, "import os, sys; print(os.getppid(), sys.flags.no_site)", server.path, "-S", watch=False)
    out, _err = process.communicate(timeout=20)
    assert out.split() == [str(process.pid), "1"]


def test_a_server_with_a_second_thread_refuses(tmp_path: Path) -> None:
    (tmp_path / "threaded.py").write_text("import threading; threading.Thread(target=threading.Event().wait).start()")
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("PYTHONPATH", f"{tmp_path}{os.pathsep}{ROOT}")
        server = ForkServer(preload=["threaded"])
        server.start()
    try:
        process = launch(tmp_path, f"{PRINT_PID}; print(os.getppid())", server.path)
        out, _err = process.communicate(timeout=20)
        assert int(out.split()[1]) == process.pid
    finally:
        assert server.pid is not None
        os.kill(server.pid, signal.SIGKILL)
        server.stop()


def test_half_a_request_stops_nobody_else(tmp_path: Path, server: ForkServer) -> None:
    with socket.socket(socket.AF_UNIX) as half:
        half.connect(str(server.path))
        half.send(LENGTH.pack(100) + b"{")
        process = launch(tmp_path, PRINT_PID, server.path)
        assert process.wait(20) == 0
        assert recorded(tmp_path, process).closed


PRELOADED = """
import json, random, sys, os, numpy, torch
print(json.dumps([random.random(), numpy.random.rand(), torch.get_num_threads(), torch.cuda._is_in_bad_fork(),
                  "ray" in sys.modules]))
"""
WORKER = """
import json, os, sys
from ray import WorkerID
print(json.dumps({"parent": os.getppid(), "id": WorkerID.from_random().hex(), "job": os.environ["RAY_JOB_ID"],
                  "data": "ray.data" in sys.modules, "threads": len(os.listdir("/proc/self/task"))}))
"""


@pytest.fixture(scope="module")
def preloaded() -> Iterator[ForkServer]:
    """With all that the product preloads, which takes seconds: shared. Each test names jobs of its own."""
    with ForkServer() as server:
        yield server


def told(folder: Path, code: str, server: ForkServer, **variables: str) -> Any:
    """What the script prints, which has to end well."""
    process = launch(folder, code, server.path, watch=False, env=variables)
    out, err = process.communicate(timeout=60)
    assert process.returncode == 0, err
    assert "refused" not in err
    return json.loads(out)


def test_what_is_preloaded_starts_no_thread_and_draws_nothing_twice(tmp_path: Path, preloaded: ForkServer) -> None:
    one, two = (told(tmp_path, PRELOADED, preloaded, OMP_NUM_THREADS="2") for _ in range(2))
    assert len(os.listdir(f"/proc/{preloaded.pid}/task")) == 1
    assert one[0] != two[0]
    assert one[1] != two[1]
    assert one[2:] == two[2:] == [2, False, False]


def test_workers_of_a_job_are_forked_where_ray_is_imported_and_draw_ids_of_their_own(
    tmp_path: Path, preloaded: ForkServer
) -> None:
    """Ray's ids are drawn inside its core, where all children of a process that has drawn would draw the same.

    The last test with this server: it ends it, and sees its jobs' servers gone too.
    """
    jobs = ("01000000", "01000000", "02000000")
    found = [told(tmp_path, WORKER, preloaded, RAY_JOB_ID=job) for job in jobs]
    parents = [each["parent"] for each in found]
    assert [psutil.Process(parent).ppid() for parent in parents] == [preloaded.pid] * 3
    assert parents[0] == parents[1] != parents[2]
    assert len({each["id"] for each in found}) == 3
    assert [each["job"] for each in found] == list(jobs)
    assert all(each["data"] and each["threads"] == 1 for each in found)
    preloaded.stop()
    assert not any(psutil.pid_exists(parent) for parent in parents)
    assert not list(preloaded.path.parent.glob(f"{preloaded.path.name}*"))


@pytest.mark.parametrize(
    ("module", "says"),
    [
        ("raise RuntimeError('no')", "cannot import ray: no"),
        ("from ray import WorkerID\nWorkerID.from_random()", "draws at random when it is imported"),
    ],
)
def test_without_a_fit_server_of_its_job_a_worker_is_forked_by_the_first(
    tmp_path: Path, module: str, says: str, capfd: pytest.CaptureFixture[str]
) -> None:
    """Ray's own module is what is spoilt here: one that is found before it on the workers' search path."""
    (tmp_path / "trainers").mkdir()
    (tmp_path / "trainers" / "__init__.py").write_text(module)
    code = "import os, sys; print(os.getppid(), 'ray' in sys.modules)"
    with ForkServer(preload=[]) as server:
        parents, launchers = [], []
        for _ in range(2):
            env = {"RAY_JOB_ID": "01000000", "PYTHONPATH": str(tmp_path)}
            process = launch(tmp_path, code, server.path, watch=False, env=env)
            out, err = process.communicate(timeout=60)
            assert process.returncode == 0, err
            parents.append(out.split())
            launchers.append(process.pid)
        assert parents[0] == [str(launchers[0]), "False"]  # it waited for what never serves: a plain process
        assert parents[1] == [str(server.pid), "False"]
    assert says in capfd.readouterr().err


PROGRAM = """
import json, os, signal, sys, time
import psutil
from pathlib import Path
from trainers.witness import watched
from chaos.cluster import ray_cluster
from chaos.forkserver import ForkServer
from chaos.interrupts import Interrupts
from chaos.launcher import py_executable

class Worker:
    def __init__(self, folder):
        self.folder = folder

    def train(self):
        import torch
        watched(Path(self.folder), "run")
        model = torch.nn.Linear(4, 4)
        optimizer = torch.optim.AdamW(model.parameters())
        (model(torch.ones(4, 4)) @ torch.ones(4, 4)).sum().backward()
        optimizer.step()
        return os.getpid(), os.getppid(), os.getpgid(0), bool(torch.isfinite(model.weight).all())

with ForkServer() as server, Interrupts() as interrupts, ray_cluster(3, interrupts):
    import ray
    variables = server.environment
    kind = ray.remote(Worker).options(runtime_env={"py_executable": py_executable(), "env_vars": variables})
    workers = [kind.remote(sys.argv[1]) for _ in range(3)]
    who = ray.get([worker.train.remote() for worker in workers])
    ray.kill(workers[0])
    os.kill(who[1][0], signal.SIGKILL)
    for worker in workers[:2]:
        try:
            ray.get(worker.train.remote())
        except ray.exceptions.RayActorError:
            pass
    until = time.monotonic() + 20  # of the first one, which Ray ends, Ray may end the launcher too
    while not any('"signal":9' in path.read_text() for path in Path(sys.argv[1]).glob("launcher-*")):
        assert time.monotonic() < until, "the end of a killed worker was not recorded"
        time.sleep(0.01)
    parents = {(parent, psutil.Process(parent).ppid()) for _pid, parent, _group, _good in who}
    print(json.dumps({"server": server.pid, "parents": list(parents), "who": who}), flush=True)
    if sys.argv[2] == "killed":
        os.kill(os.getpid(), signal.SIGKILL)
"""


@pytest.mark.parametrize("end", ["by itself", "killed"])
def test_an_actor_of_ray_trains_and_nothing_is_left(tmp_path: Path, wait_for: Wait, end: str) -> None:
    done = subprocess.run(
        [sys.executable, "-c", PROGRAM, str(tmp_path), end], capture_output=True, text=True, timeout=120,
        env={**os.environ, "PYTHONPATH": str(ROOT)},
    )  # fmt: skip
    assert done.returncode == (0 if end == "by itself" else -signal.SIGKILL), done.stderr
    said = json.loads(done.stdout)
    ((job_server, first),) = said["parents"]
    assert first == said["server"]
    assert all(good for *_rest, good in said["who"])
    workers = [pid for pid, *_rest in said["who"]]
    wait_for(lambda: not any(psutil.pid_exists(pid) for pid in [*workers, job_server, first]))
    ends = {
        line.body["pid"]: line.body["signal"]
        for path in tmp_path.glob("launcher-*") for line in read_history(path).lines if line.event == "exited"
    }  # fmt: skip
    assert ends[workers[1]] == signal.SIGKILL
