"""Which tests execute which lines of the modules, by coverage's contexts: measured once, then what has changed."""

from __future__ import annotations

import hashlib
import json
import os
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

import coverage
import pytest
from mutants import Mutant
from rich.console import Console
from rich.progress import track

ROOT = Path(__file__).resolve().parents[2]
SLOW_S = 2.0  # a test that takes longer is left out


@dataclass
class TestMap:
    """digest: of everything but the tests; files: digest of each test file; seconds: how long each test takes, traced.

    failed: tests that fail without any mutant; lines: module → line → tests.
    """

    __test__ = False

    digest: str
    files: dict[str, str] = field(default_factory=dict)
    seconds: dict[str, float] = field(default_factory=dict)
    failed: list[str] = field(default_factory=list)
    lines: dict[str, dict[str, list[str]]] = field(default_factory=dict)

    def covering(self, mutant: Mutant) -> set[str]:
        """What is evaluated at import is looked at by every test that executes anything of the module."""
        first, last = mutant.lines
        of_module = self.lines.get(mutant.module, {})
        lines = of_module if not mutant.function else {str(line) for line in range(first, last + 1)}
        found = {test for line in lines for test in of_module.get(line, ())}
        return {test for test in found if test not in self.failed and self.seconds[test] < SLOW_S}

    def forget(self, files: set[str]) -> None:
        """Whatever is known of the tests in these files."""
        for tests in (tests for lines in self.lines.values() for tests in lines.values()):
            tests[:] = [test for test in tests if test.partition("::")[0] not in files]
        self.seconds = {test: took for test, took in self.seconds.items() if test.partition("::")[0] not in files}
        self.failed = [test for test in self.failed if test.partition("::")[0] not in files]


class _Times:
    """Notes how long each test takes, and whether it fails."""

    def __init__(self, into: TestMap) -> None:
        self.into = into

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        self.into.seconds[report.nodeid] = self.into.seconds.get(report.nodeid, 0.0) + report.duration
        if report.failed:
            self.into.failed.append(report.nodeid)


def measured(
    path: Path, modules: Sequence[str], folders: Sequence[str], items: Mapping[str, pytest.Item],
    run: Callable[[str], None],
) -> TestMap:  # fmt: skip
    """The map as `path` has it, with whatever has changed since measured in a forked child: tracing stays there."""
    sources = (p for folder in ("chaos/audit", "storage", *folders) for p in sorted((ROOT / folder).rglob("*.py")))
    digest = _digest(source for source in sources if not source.name.startswith("test_"))
    before = TestMap(**json.loads(path.read_text())) if path.exists() else TestMap(digest)
    found = before if before.digest == digest else TestMap(digest)
    files = {str(p.relative_to(ROOT)): _digest([p]) for folder in folders for p in (ROOT / folder).glob("test_*.py")}
    changed = {name for name, digest in files.items() if found.files.get(name) != digest}
    if not changed:
        return found
    found.forget(changed)
    found.files = files
    pid = os.fork()
    if pid == 0:
        try:
            again = {test: item for test, item in items.items() if test.partition("::")[0] in changed}
            _measure(found, modules, again, run)
            path.write_text(json.dumps(vars(found)))
            os._exit(0)
        finally:
            os._exit(1)
    if os.waitpid(pid, 0)[1]:
        raise RuntimeError("the tests could not be traced")
    return TestMap(**json.loads(path.read_text()))


def _measure(
    found: TestMap, modules: Sequence[str], items: Mapping[str, pytest.Item], run: Callable[[str], None]
) -> None:
    for item in [*items.values()][:1]:
        item.config.pluginmanager.register(_Times(found))
    files = [str(file_of(name)) for name in modules]
    cover = coverage.Coverage(data_file=None, config_file=False, include=files)
    cover.start()
    for test in track(items, "which tests execute which lines", console=Console(stderr=True)):
        cover.switch_context(test)
        run(test)
    cover.stop()
    for name in modules:
        of_module = found.lines.setdefault(name, {})
        for line, tests in cover.get_data().contexts_by_lineno(str(file_of(name))).items():
            of_module[str(line)] = sorted({*of_module.get(str(line), ()), *filter(None, tests)})


def file_of(module: str) -> Path:
    return ROOT / f"{module.replace('.', '/')}.py"


def _digest(paths: Iterable[Path]) -> str:
    return hashlib.sha256(b"".join(path.read_bytes() for path in paths)).hexdigest()
