"""The house rules that no type checker sees: who imports whom, how long things are, and what the README promises."""

from __future__ import annotations

import ast
import fnmatch
import re
from collections.abc import Iterator
from graphlib import CycleError, TopologicalSorter
from pathlib import Path

import pytest
import yaml
from pydantic import BaseModel

from chaos.schema import AtSettings, FaultSettings, RunSettings

ROOT = Path(__file__).resolve().parent.parent
PACKAGES = ("chaos", "trainers", "storage")
MAY_IMPORT = {"chaos": {"chaos", "trainers", "storage"}, "trainers": {"trainers", "storage"}, "storage": {"storage"}}
IMPORT_RAY = {
    "chaos.cluster", "chaos.forkjobs", "chaos.labs.pipeline_ray",
    "trainers.group", "trainers.pipeline", "trainers.pool", "trainers.predecessors", "trainers.processes",
    "trainers.source", "trainers.supervisor", "trainers.watch", "trainers.worker",
}  # fmt: skip
TOP_LEVEL = {
    "pyproject.toml", "chaos", "trainers", "storage", "tests", "README.md", ".ci", ".gitignore", "LICENSE",
    "CHANGELOG.md",
}  # fmt: skip
MODULE_LINES, FUNCTION_LINES, EXAMPLE_LINES = 300, 60, 40


def _name(path: Path) -> str:
    parts = path.relative_to(ROOT).with_suffix("").parts
    return ".".join(parts[:-1] if parts[-1] == "__init__" else parts)


MODULES = {_name(path): path for package in PACKAGES for path in sorted((ROOT / package).rglob("*.py"))}


TEXTS = {name: path.read_text() for name, path in MODULES.items()}
TREES = {name: ast.parse(text) for name, text in TEXTS.items()}


def _imports(name: str) -> Iterator[str]:
    """Everything that the module imports, inside functions and for the type checker too; own modules in full."""
    for node in ast.walk(TREES[name]):
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            assert node.level == 0, f"{name} imports relatively"
            assert node.module is not None
            for alias in node.names:
                full = f"{node.module}.{alias.name}"
                yield full if full in MODULES else node.module


IMPORTS = {name: set(_imports(name)) for name in MODULES}


def _top(name: str) -> str:
    return name.partition(".")[0]


@pytest.mark.parametrize("package", PACKAGES)
def test_imports_go_one_way(package: str) -> None:
    upward = {
        (name, imported)
        for name in MODULES
        if _top(name) == package
        for imported in IMPORTS[name]
        if _top(imported) in PACKAGES and _top(imported) not in MAY_IMPORT[package]
    }
    assert not upward


def test_no_cycles() -> None:
    try:
        tuple(TopologicalSorter({name: IMPORTS[name] & MODULES.keys() for name in MODULES}).static_order())
    except CycleError as error:
        pytest.fail(f"import cycle: {' → '.join(error.args[1])}")


def test_every_import_of_an_own_package_is_one_of_its_modules() -> None:
    own = {imported for name in MODULES for imported in IMPORTS[name] if _top(imported) in PACKAGES}
    assert own <= MODULES.keys()  # otherwise the tests above would look past it


def test_ray_is_imported_in_a_handful_of_modules() -> None:
    assert {name for name in MODULES if "ray" in map(_top, IMPORTS[name])} == IMPORT_RAY


def test_storage_imports_neither_ray_nor_torch() -> None:
    found = {_top(imported) for name in MODULES if _top(name) == "storage" for imported in IMPORTS[name]}
    assert not found & {"ray", "torch"}


def test_the_auditor_shares_no_code_with_what_it_judges() -> None:
    audit = [name for name in MODULES if name.startswith("chaos.audit")]
    assert audit
    for name in audit:
        tops = {_top(imported) for imported in IMPORTS[name]}
        assert not tops & {"storage", "trainers", "ray", "torch"}, name
        assert all(i.startswith("chaos.audit") for i in IMPORTS[name] if _top(i) == "chaos"), name


@pytest.mark.no_cover
@pytest.mark.parametrize("name", MODULES)
def test_sizes(name: str) -> None:
    assert len(TEXTS[name].splitlines()) <= MODULE_LINES
    for node in ast.walk(TREES[name]):
        if isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef)):
            length = (node.end_lineno or 0) - node.lineno + 1
            assert length <= FUNCTION_LINES, f"{node.name} has {length} lines"


@pytest.mark.parametrize("name", MODULES)
def test_every_module_says_what_it_is(name: str) -> None:
    assert ast.get_docstring(TREES[name])


def test_top_level() -> None:
    ignored = [line.rstrip("/") for line in (ROOT / ".gitignore").read_text().split()]
    there = {path.name for path in ROOT.iterdir() if path.name != ".git"}
    left = {name for name in there if not any(fnmatch.fnmatch(name, pattern) for pattern in ignored)}
    assert left == TOP_LEVEL


def test_no_pickle() -> None:
    banned = {"pickle", "cloudpickle", "dill", "joblib", "shelve"}
    assert not {name for name in MODULES if banned & set(map(_top, IMPORTS[name]))}
    assert not [name for name, text in TEXTS.items() if re.search(r"torch\.(save|load)\(", text)]


README = (ROOT / "README.md").read_text()


def test_the_first_two_shell_blocks_run_and_test_with_their_own_setup() -> None:
    blocks = re.findall(r"^```(?:sh|bash|console)[ \t]*\n(.*?)^```", README, re.MULTILINE | re.DOTALL)
    run, tests = blocks[:2]
    for block in (run, tests):
        assert block.startswith("python3 -m venv .venv && . .venv/bin/activate && pip install ")
    assert run.splitlines()[-1] == "killpoint run"
    assert "'.[test]'" in tests
    assert "-m pytest" in tests


@pytest.mark.parametrize(("file", "language"), [("workload.py", "python"), ("experiment.yaml", "yaml")])
def test_the_example_is_there(file: str, language: str) -> None:
    assert re.search(rf"^<!-- example: {file} -->\n```{language}\n(.*?)^```", README, re.MULTILINE | re.DOTALL)


def test_the_example_is_short() -> None:
    texts = re.findall(r"^<!-- example: \S+ -->\n```\w+\n(.*?)^```", README, re.MULTILINE | re.DOTALL)
    assert len(texts) == 2
    assert sum(len(text.splitlines()) for text in texts) < EXAMPLE_LINES


@pytest.mark.parametrize(
    ("model", "prefix"), [(RunSettings, ""), (FaultSettings, ""), (AtSettings, "at.")], ids=lambda each: str(each)
)
def test_every_field_of_an_experiment_file_is_described(model: type[BaseModel], prefix: str) -> None:
    rows = re.findall(r"^\| (`[^|]*`) \|", README, re.MULTILINE)
    described = {name for row in rows for name in re.findall(r"`([^`]+)`", row)}
    assert {f"{prefix}{name}" for name in model.model_fields if name != "at"} <= described


def test_defaults_are_those_of_the_description() -> None:
    for name, default in re.findall(r"^\| `(\w+)` \| `?([^`|]+)`? \|", README, re.MULTILINE):
        field = RunSettings.model_fields.get(name)
        if field is not None and default not in ("required", "{}"):
            assert yaml.safe_load(default) == field.default, name


def test_links_lead_somewhere() -> None:
    for path in (ROOT / "README.md", *ROOT.glob("*/README.md"), *ROOT.glob("*/*/README.md")):
        for link in re.findall(r"\]\(([^)#:]+)(?:#[^)]*)?\)", path.read_text()):
            assert (path.parent / link).exists(), f"{path}: {link}"


def test_ci_is_executable_and_fails_on_failure() -> None:
    script = ROOT / ".ci" / "run"
    assert script.stat().st_mode & 0o111
    assert "set -euo pipefail" in script.read_text()
