"""Which tests execute which lines of the modules, by coverage's contexts: measured once, then what has changed."""

from __future__ import annotations

import hashlib
import json
import os
import time
from collections import Counter
from collections.abc import Callable, Container, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

import coverage
import pytest
from mutants import Mutant
from rich.console import Console
from rich.progress import track

ROOT = Path(__file__).resolve().parents[2]
SLOW_S = 2.0  # a test that takes longer is left out
START_S = 0.02  # of any test, beside what it takes itself
_ROUNDS = 3


@dataclass
class TestMap:
    """digest: of all but the tests; files: digest of each test file; seconds: processor time of each test, traced.

    failed: tests that fail without any mutant; lines: test → module → lines.
    """

    __test__ = False
    digest: str
    files: dict[str, str] = field(default_factory=dict)
    seconds: dict[str, float] = field(default_factory=dict)
    failed: list[str] = field(default_factory=list)
    lines: dict[str, dict[str, list[int]]] = field(default_factory=dict)

    def covering(self, mutant: Mutant) -> set[str]:
        """What is evaluated at import is looked at by every test that executes anything of the module, and by those of
        the module's own file: to make an object with a default value executes no line.
        """
        first, last = mutant.lines
        found = {test for test, modules in self.lines.items() for line in modules.get(mutant.module, ())
                 if first <= line <= last or not mutant.function}  # fmt: skip
        if not mutant.function:
            own = f"/test_{mutant.module.rpartition('.')[2]}.py"
            found |= {test for test in self.seconds if own in test}
        return {test for test in found if test not in self.failed and self.seconds[test] < SLOW_S}

    def rarity(self, module: str, within: Container[int]) -> dict[str, float]:
        """Of each test: the sum, over the lines of this part of the module that it executes, of one by how many do."""
        lines = {test: [line for line in of.get(module, ()) if line in within] for test, of in self.lines.items()}
        often = Counter(line for found in lines.values() for line in found)
        return {test: sum(1 / often[line] for line in found) for test, found in lines.items()}

    def spread(self, modules: Iterable[str]) -> dict[str, int]:
        """Of each test its place when always the one is taken that executes most lines which none before it does, for
        its time; when nothing is left, from the beginning.
        """
        chosen = set(modules)
        lines = {test: {(m, line) for m in chosen & of.keys() for line in of[m]} for test, of in self.lines.items()}
        places: dict[str, int] = {}
        for _ in range(_ROUNDS):
            left = {test: set(found) for test, found in lines.items() if found and test not in places}
            while left:
                best = max(left, key=lambda test: (len(left[test]) / (START_S + self.seconds[test]), test))
                gone = left.pop(best)
                places[best] = len(places)
                left = {test: rest for test, found in left.items() if (rest := found - gone)}
        return {test: places.get(test, len(places)) for test in self.lines}

    def forget(self, files: set[str]) -> None:
        """Whatever is known of the tests in these files."""
        gone = {test for test in self.seconds if test.partition("::")[0] in files}
        self.seconds = {test: took for test, took in self.seconds.items() if test not in gone}
        self.lines = {test: lines for test, lines in self.lines.items() if test not in gone}
        self.failed = [test for test in self.failed if test not in gone]


class _Failures:
    def __init__(self, into: TestMap) -> None:
        self.into = into

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
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
        item.config.pluginmanager.register(_Failures(found))
    files = [str(file_of(name)) for name in modules]
    cover = coverage.Coverage(data_file=None, config_file=False, include=files)
    cover.start()
    for test in track(items, "which tests execute which lines", console=Console(stderr=True)):
        cover.switch_context(test)
        began = time.process_time()
        run(test)
        found.seconds[test], found.lines[test] = time.process_time() - began, {}
    cover.stop()
    for name in modules:
        for line, tests in cover.get_data().contexts_by_lineno(str(file_of(name))).items():
            for test in filter(None, tests):
                found.lines[test].setdefault(name, []).append(line)


def file_of(module: str) -> Path:
    return ROOT / f"{module.replace('.', '/')}.py"


def _digest(paths: Iterable[Path]) -> str:
    return hashlib.sha256(b"".join(path.read_bytes() for path in paths)).hexdigest()
