"""What Ray runs first in its workers: the launcher at once, and Ray's own script where anything is unusual."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from chaos import launcher, workersetup
from chaos.forkclient import FORKSERVER_ENV
from chaos.forkserver import ForkServer
from chaos.workersetup import take_variables, worker_arguments

PRINTS = "import json, os, sys; print(json.dumps([sys.argv[1:], os.getppid(), os.environ.get('KP_SET')]))"


def run(folder: Path, context: dict[str, Any] | None, *more: str) -> tuple[Any, int]:
    """Runs the script as Ray does. What the worker printed, and the pid that Ray started."""
    (folder / "default_worker.py").write_text(PRINTS)
    (folder / "setup_worker.py").write_text("import json; print(json.dumps('left to Ray'))")
    given = [] if context is None else [f"--serialized-runtime-env-context={json.dumps(context)}"]
    process = subprocess.Popen(
        [sys.executable, workersetup.script(), str(folder / "default_worker.py"), *given, *more, "--node=1"],
        stdout=subprocess.PIPE, text=True, env={k: v for k, v in os.environ.items() if not k.startswith("KILLPOINT")},
    )  # fmt: skip
    out, _err = process.communicate(timeout=30)
    assert process.returncode == 0
    return json.loads(out), process.pid


def test_the_launcher_is_the_workers_parent(tmp_path: Path) -> None:
    context = {"py_executable": launcher.py_executable(), "env_vars": {"KP_SET": "yes"}, "command_prefix": []}
    (arguments, parent, value), pid = run(tmp_path, context, "--language=PYTHON")
    assert (arguments, parent, value) == (["--node=1"], pid, "yes")


@pytest.mark.parametrize("context", [None, {}, {"py_executable": sys.executable, "env_vars": {"KP_SET": "yes"}}])
def test_without_a_launcher_it_becomes_the_interpreter(tmp_path: Path, context: dict[str, Any] | None) -> None:
    (arguments, parent, value), _pid = run(tmp_path, context)
    assert (arguments, parent) == (["--node=1"], os.getpid())
    assert value == ("yes" if context else None)


def test_where_there_is_a_fork_server_rays_own_workers_are_forked_too(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with ForkServer(preload=[]) as server:
        monkeypatch.setenv("KP_SERVER", str(server.path))
        (_arguments, parent, _value), _pid = run(tmp_path, {"env_vars": {FORKSERVER_ENV: "${KP_SERVER}"}})
        assert parent == server.pid


@pytest.mark.parametrize(
    ("context", "more"),
    [
        ({"py_executable": "/usr/bin/true"}, []),
        ({"command_prefix": ["nice"]}, []),
        ({"override_worker_entrypoint": "other.py"}, []),
        ({"something_new": 1}, []),
        ({}, ["--language=JAVA"]),
    ],
)
def test_anything_else_is_left_to_ray(tmp_path: Path, context: dict[str, Any], more: list[str]) -> None:
    assert run(tmp_path, context, *more)[0] == "left to Ray"


def test_what_ray_puts_into_the_context_is_known() -> None:
    from ray._private.runtime_env.context import RuntimeEnvContext

    given = json.loads(RuntimeEnvContext(env_vars={"A": "1"}, py_executable="x").serialize())
    assert worker_arguments(["w.py", f"--serialized-runtime-env-context={json.dumps(given)}"]) == (given, ["w.py"])
    assert worker_arguments([]) is None


def test_variables_are_taken_as_ray_takes_them(monkeypatch: pytest.MonkeyPatch) -> None:
    from ray._private.utils import update_envs

    monkeypatch.setenv("KP_THERE", "there")
    given = {
        "KP_A": "${KP_THERE}:x", "KP_B": "${KP_NOT_THERE}y", "KP_C": "$KP_THERE", "KP_D": "${lower}",
        "KP_E": "${KP_A}z",
    }  # fmt: skip
    found = []
    for take in (take_variables, update_envs):
        for name in given:
            monkeypatch.delenv(name, raising=False)
        take(given)
        found.append({name: os.environ[name] for name in given})
    assert found[0] == found[1]
    assert found[0]["KP_A"] == "there:x"
