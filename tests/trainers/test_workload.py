"""The seam: how a workload is named and loaded, and the errors of those that do not fit."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest
import torch

from trainers.errors import WorkloadError
from trainers.spec import BUILT_IN, code_digest
from trainers.workload import Workload, build, code_files, load_builder

GOOD = """
from pathlib import Path
import torch
from trainers.workload import Workload
def build(config):
    model = torch.nn.Linear(config.get("width", 2), 1)
    return Workload(model, torch.optim.SGD(model.parameters(), 0.1), lambda model, batch: None, Path("data"))
number = 3
"""


@pytest.fixture
def file(tmp_path: Path) -> Path:
    path = tmp_path / "mine.py"
    path.write_text(GOOD)
    return path


def test_a_file(file: Path) -> None:
    workload = build(f"{file}:build", {"width": 5})
    assert isinstance(workload, Workload)
    assert workload.scheduler is None
    assert next(workload.model.parameters()).shape == (1, 5)
    assert code_files(f"{file}:build") == [file]


def test_a_file_seen_from_the_current_folder(file: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(file.parent)
    assert isinstance(build("mine.py:build", {}), Workload)
    assert code_files("mine.py:build") == [file]


def test_two_files_of_one_name_are_two_modules(tmp_path: Path) -> None:
    for name, width in (("a", 3), ("b", 4)):
        (tmp_path / name).mkdir()
        (tmp_path / name / "mine.py").write_text(GOOD.replace('"width", 2', f'"width", {width}'))
    builders = [load_builder(f"{tmp_path / name / 'mine.py'}:build") for name in "ab"]
    assert [next(builder({}).model.parameters()).shape for builder in builders] == [(1, 3), (1, 4)]
    assert [sys.modules[builder.__module__].__dict__["build"] for builder in builders] == builders


def test_a_module_on_the_path(file: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    file.rename(file.with_name("killpoint_test_module.py"))
    monkeypatch.syspath_prepend(file.parent)
    assert isinstance(build("killpoint_test_module:build", {}), Workload)
    assert code_files("killpoint_test_module:build") == [file.with_name("killpoint_test_module.py")]


@pytest.mark.parametrize("name", BUILT_IN)
def test_the_built_in_ones_use_the_same_seam(name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    workload = build(name, {"samples": 70} if name == "bytelm" else {})
    assert workload.dataset.is_relative_to(tmp_path)
    assert list(workload.dataset.glob("*.parquet"))
    assert build(name, {"samples": 70} if name == "bytelm" else {}).dataset == workload.dataset
    assert code_files(name)[0].name == f"{name}.py"
    if name == "bytelm":
        assert sum(p.numel() for p in workload.model.parameters()) >= 1_000_000


def test_without_a_cache_variable_the_home_is_used(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("XDG_CACHE_HOME", raising=False)
    monkeypatch.setenv("HOME", str(tmp_path))
    assert build("linreg", {}).dataset.is_relative_to(tmp_path / ".cache" / "killpoint")


@pytest.mark.parametrize("name", ["bytelmm", "package.module", "package.module:", ":build", "mine.py"])
def test_a_name_in_no_form_lists_the_forms(name: str) -> None:
    with pytest.raises(WorkloadError):
        load_builder(name)
    if name != ":build":
        with pytest.raises(WorkloadError, match=r"write package.module:build, path/to/file.py:build or one of bytelm"):
            load_builder(name)


def test_what_is_missing_is_named(file: Path) -> None:
    with pytest.raises(WorkloadError, match=r"there is no file .*nowhere\.py"):
        load_builder(f"{file.with_name('nowhere.py')}:build")
    with pytest.raises(WorkloadError, match=r"importing no_such_package_here\.x failed: ModuleNotFoundError"):
        load_builder("no_such_package_here.x:build")
    with pytest.raises(WorkloadError, match="has no function 'make'"):
        load_builder(f"{file}:make")
    with pytest.raises(WorkloadError, match="has no function 'number'"):
        load_builder(f"{file}:number")


def test_a_file_that_fails_says_how(file: Path) -> None:
    file.write_text("raise RuntimeError('on purpose')")
    with pytest.raises(WorkloadError, match=r"importing .*mine\.py failed: RuntimeError: on purpose \(mine\.py:1\)"):
        load_builder(f"{file}:build")


def test_a_build_that_fails_says_how(file: Path) -> None:
    file.write_text("def build(config):\n    return config['lr']")
    with pytest.raises(WorkloadError, match=r"build\(config\) failed: KeyError: 'lr' \(mine\.py:2\)"):
        build(f"{file}:build", {})


def test_a_build_that_returns_something_else(file: Path) -> None:
    file.write_text("def build(config):\n    return 1, 2")
    with pytest.raises(WorkloadError, match="returned tuple, not a Workload"):
        build(f"{file}:build", {})


def test_an_optimizer_of_another_model(file: Path) -> None:
    file.write_text(GOOD.replace("model.parameters(), 0.1", "torch.nn.Linear(1, 1).parameters(), 0.1"))
    with pytest.raises(WorkloadError, match="holds a parameter that is not the model's"):
        build(f"{file}:build", {})


def test_a_model_without_anything_to_train(file: Path) -> None:
    begin = "from trainers.workloads import tiny\ndef build(config):\n    workload = tiny.build(config)\n"
    file.write_text(f"{begin}    workload.model.requires_grad_(False)\n    return workload\n")
    with pytest.raises(WorkloadError, match="no parameter with requires_grad"):
        build(f"{file}:build", {})


def test_the_code_digest_covers_the_workload(file: Path) -> None:
    before = code_digest([file])
    assert before == code_digest([file])
    assert before != code_digest([])
    file.write_text(GOOD + "# changed\n")
    assert code_digest([file]) != before


def test_a_file_imports_from_its_own_folder_wherever_it_is_used(
    file: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    file.write_text("import killpoint_test_sibling\n" + GOOD)
    sibling = tmp_path / "killpoint_test_sibling.py"
    sibling.write_text("width = 3\n")
    (tmp_path / "killpoint_test_unused.py").write_text("")
    monkeypatch.chdir("/")
    monkeypatch.setattr(sys, "path", list(sys.path))
    assert isinstance(build(f"{file}:build", {}), Workload)
    assert code_files(f"{file}:build") == [file, sibling]
    before = code_digest(code_files(f"{file}:build"))
    sibling.write_text("width = 4\n")
    assert code_digest(code_files(f"{file}:build")) != before


@pytest.mark.parametrize("name", BUILT_IN)
def test_built_in_losses_are_one_number_a_sample(name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    workload = build(name, {"samples": 70, "context": 8, "width": 16} if name == "bytelm" else {})
    batch = {
        "bytelm": {"tokens": torch.zeros(5, 9, dtype=torch.uint8)},
        "linreg": {"x": torch.zeros(5, dtype=torch.float64), "y": torch.ones(5, dtype=torch.float64)},
        "tiny": {"x": torch.zeros(5, 8), "y": torch.ones(5)},
    }[name]
    losses = workload.loss(workload.model, batch)
    assert losses.shape == (5,)
    losses.sum().backward()
    workload.optimizer.step()
    if workload.scheduler is not None:
        for _ in range(70):
            workload.scheduler.step()
    workload.model.eval()
    assert torch.isfinite(workload.loss(workload.model, batch)).all()
