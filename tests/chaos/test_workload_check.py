"""Mistakes in naming a workload are found before anything starts, with the line of the experiment file."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from chaos.errors import ExperimentError
from chaos.experiment import parse_experiment
from chaos.run import run_experiment
from chaos.workload_check import check_workload

TEXT = "# a comment\nrun:\n  workload: '{}'\n"


def problem(folder: Path, workload: str) -> str:
    with pytest.raises(ExperimentError) as caught:
        check_workload(parse_experiment(TEXT.format(workload), folder / "e.yaml"))
    return str(caught.value)


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A package in the current folder, none of which may be imported: doing so would raise."""
    monkeypatch.chdir(tmp_path)
    (tmp_path / "mine.py").write_text("raise ImportError\ndef build(config): ...\n")
    (tmp_path / "syntax.py").write_text("x = 1\ndef build(config:\n")
    (tmp_path / "package").mkdir()
    for name in ("__init__", "module"):
        (tmp_path / "package" / f"{name}.py").write_text("raise ImportError\ndef build(config): ...\n")
    return tmp_path


@pytest.mark.parametrize(("workload", "what"), [
    (
        "nowhere.py:build",
        "there is no file {}/nowhere.py (a workload's path is seen from the experiment file's folder)",
    ),
    ("mine.py:biuld", "{}/mine.py has no function 'biuld'; did you mean build?"),
    ("syntax.py:build", "{}/syntax.py:2 is not Python: '(' was never closed"),
    ("pakage.module:build", "there is no module 'pakage', neither installed nor in {}"),
    ("package.modul:build", "the package package has no module 'modul'"),
    ("mine.sub:build", "mine is a module, not a package: it has no 'sub'"),
    ("package.module:make", "{}/package/module.py has no function 'make'"),
])  # fmt: skip
def test_a_mistake_is_named_with_its_line(folder: Path, workload: str, what: str) -> None:
    assert problem(folder, workload) == f"{folder}/e.yaml:3: run.workload: {what.format(folder)}"


@pytest.mark.parametrize("workload", [
    "tiny", "mine.py:build", "package.module:build", "package:build", "trainers.workloads.tiny:build", "sys:exit",
])  # fmt: skip
def test_what_is_there_is_found_without_importing_it(folder: Path, workload: str) -> None:
    check_workload(parse_experiment(TEXT.format(workload), folder / "e.yaml"))
    assert "package" not in sys.modules


@pytest.mark.parametrize("source", [
    "from elsewhere import build", "from elsewhere import make as build", "from elsewhere import *", "build = object()",
    "def __getattr__(name): ...", "if True:\n    class build: ...",
])  # fmt: skip
def test_a_name_may_be_bound_in_any_way(folder: Path, source: str) -> None:
    (folder / "mine.py").write_text(source)
    check_workload(parse_experiment(TEXT.format("mine.py:build"), folder / "e.yaml"))


def test_no_folder_is_made_for_a_mistake(folder: Path) -> None:
    with pytest.raises(ExperimentError):
        run_experiment(parse_experiment(TEXT.format("nowhere.py:build"), folder / "e.yaml"), folder / "run")
    assert not (folder / "run").exists()


def test_torch_is_not_imported() -> None:
    code = (
        "import sys; from chaos.experiment import parse_experiment; from chaos.workload_check import check_workload\n"
        "check_workload(parse_experiment('run: {workload: \"trainers.workloads.bytelm:build\"}'))\n"
        "print({'ray', 'torch'} & sys.modules.keys())"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout == "set()\n"
