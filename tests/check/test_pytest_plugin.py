"""The plugin in pytest sessions of a small project; what needs Ray is in tests/integration."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import tomllib
from importlib import import_module
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
HEAVY = {"torch", "ray", "numpy", "pyarrow", "pydantic", "yaml", "typer", "rich", "psutil"}


def session(folder: Path, *arguments: str) -> subprocess.CompletedProcess[str]:
    (folder / "test_mine.py").write_text("def test_mine():\n    pass\n")
    (folder / "pytest.ini").write_text("[pytest]\naddopts = --strict-markers --strict-config\n")
    alone = {"PYTEST_DISABLE_PLUGIN_AUTOLOAD": "1", "PYTHONPATH": str(ROOT), "PYTEST_ADDOPTS": ""}
    return subprocess.run(
        [sys.executable, "-m", "pytest", "-v", "-p", "chaos.pytest_plugin", *arguments], cwd=folder,
        capture_output=True, text=True, timeout=100, check=False, env={**os.environ, **alone},
    )  # fmt: skip


def test_pytest_finds_it() -> None:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    assert hasattr(import_module(project["entry-points"]["pytest11"]["killpoint"]), "pytest_addoption")


def test_importing_it_imports_nothing_that_takes_time() -> None:
    code = "import json, sys, pytest; b = set(sys.modules); import chaos.pytest_plugin; "
    code += "print(json.dumps(sorted({m.partition('.')[0] for m in set(sys.modules) - b})))"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True,
                          env={**os.environ, "PYTHONPATH": str(ROOT)})  # fmt: skip
    new = set(json.loads(done.stdout))
    assert "chaos" in new
    assert not new & HEAVY
    assert not [name for name in new if name in ("trainers", "storage")]


def test_a_session_without_the_option_is_as_it_was(tmp_path: Path) -> None:
    done = session(tmp_path)
    assert (done.returncode, "1 passed" in done.stdout, "killpoint" in done.stdout.partition("collected")[2]) == (
        0, True, False,
    )  # fmt: skip


def test_a_file_that_is_not_there_is_wrong_usage(tmp_path: Path) -> None:
    done = session(tmp_path, "--killpoint", "gone.yaml")
    assert done.returncode == pytest.ExitCode.USAGE_ERROR
    assert "--killpoint gone.yaml: there is no such file" in done.stderr + done.stdout


def test_each_experiment_is_one_item(tmp_path: Path) -> None:
    for name in ("a.yaml", "b.yaml"):
        (tmp_path / name).write_text("run: {}\n")
    done = session(tmp_path, "--killpoint", "a.yaml", "--killpoint", "b.yaml", "--collect-only", "-qq")
    assert done.returncode == 0
    assert done.stdout.split()[:3] == ["test_mine.py::test_mine", "a.yaml::killpoint", "b.yaml::killpoint"]
    assert "3 tests collected" in done.stdout


def test_a_check_that_cannot_be_made_fails_and_says_why(tmp_path: Path) -> None:
    (tmp_path / "wrong.yaml").write_text("run: {workload: tiny, stepps: 4}\n")
    done = session(tmp_path, "--killpoint", "wrong.yaml")
    assert done.returncode == 1
    assert "wrong.yaml::killpoint FAILED" in done.stdout
    assert "the check could not be made" in done.stdout
    assert "unknown field; did you mean steps?" in done.stdout  # what it wrote to standard error
    assert "pytest_plugin.py" not in done.stdout.partition("FAILURES")[2]
