"""Mutation testing of the pure modules of auditor and storage: see README.md beside it.

Everything is imported and every test collected once; each mutant is then put into force in a forked child, which runs
the tests that execute its line until one fails. Results are lines of JSON; what is there already is not run again.
"""

from __future__ import annotations

import argparse
import ast
import collections
import gc
import importlib
import json
import os
import resource
import select
import shutil
import signal
import sys
import time
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any

import hypothesis
import pytest
from called import called_by, lines_of, uses
from mutants import Mutant, install, mutants
from rich.console import Console
from rich.progress import track
from testmap import ROOT, START_S, TestMap, file_of, measured

AUDIT = (
    "ledger coverage newest moment vacuous fenced redo trajectory atomic retention logbook verified deaths order alike "
    "progress remembered failures told selfsame partial epochs record plan recovery_itself "
    "consumed disturbances disturbance_events ideal windows segments steps recoveries shapes witnesses findings "
    "verdict unseen unseen_restarts ledger_prose decode formats facts events evidence"
)  # the most important first; not what asks the system: `read_…`, `api`, `plan_ahead`, `heap`
STORAGE = ("storage.selection", "storage.retention", "storage.entries")
MODULES = (*(f"chaos.audit.{name}" for name in AUDIT.split()), *STORAGE)
TESTS = ("tests/audit", "tests/storage")
MEMORY_BYTES = 8 << 30
WALL_S = 600  # of a mutant, not counting while all is stopped; what counts is a limit of processor time for each test
Result = dict[str, Any]


class Mutation:
    """The loop that takes the place of pytest's own."""

    def __init__(self, wanted: argparse.Namespace) -> None:
        self.wanted = wanted
        self.results: Path = wanted.results
        self.trees = {name: ast.parse(file_of(name).read_text()) for name in wanted.modules}
        self.kills: collections.Counter[tuple[str, str, str]] = collections.Counter()  # (module, function, test)
        self.killers: dict[str, collections.Counter[str]] = collections.defaultdict(collections.Counter)  # by module
        self.report = -1  # a pipe's end, in a child
        self.map = TestMap("")
        self.rarity: dict[tuple[str, range], dict[str, float]] = {}  # by part of a module: of each test
        self.spread: dict[str, dict[str, int]] = {}  # by module: test → its place among those that cover most

    def pytest_runtestloop(self, session: pytest.Session) -> bool:
        self.items = {item.nodeid: item for item in session.items}
        for name in self.trees:
            importlib.import_module(name)
        self.map = measured(self.results.with_suffix(".map.json"), MODULES, TESTS, self.items, self._protocol)
        if self.map.failed:
            print(f"left out, since they fail without any mutant: {self.map.failed}")
        for path in {nodeid.partition("::")[0]: nodeid for nodeid in sorted(self.items)}.values():
            self._protocol(path)  # so that what is imported and cached late is there before the forks
        gc.freeze()
        shared = self._folders()
        done = {r["id"]: r for r in read(self.results)}
        for result in done.values():
            self._note(result)
        until = time.monotonic() + self.wanted.seconds
        console = Console(stderr=True)
        for name, tree in self.trees.items():
            # A mutant's `apply` acts on the tree that it was found in; only children apply any.
            todo = [m for m in mutants(name, tree) if self._is_open(done.get(m.id))]
            for mutant in track(todo, name, console=console):
                if time.monotonic() > until:
                    return True
                self._write(self._try(mutant, tree))
                self._tidy(shared)
        return True

    def _tidy(self, shared: set[Path]) -> None:
        """Removes the folders of the tests that a child ran: thousands of them would fill the memory."""
        for folder in self._folders() - shared:
            shutil.rmtree(folder, ignore_errors=True)

    def _folders(self) -> set[Path]:
        """Those that tests were given; there is no place for them until one has asked for its own."""
        return set(self.wanted.base.iterdir()) if self.wanted.base.exists() else set()

    def _is_open(self, before: Result | None) -> bool:
        return before is None or (self.wanted.again and before["outcome"] in ("survived", "uncovered"))

    def _write(self, result: Result) -> None:
        with self.results.open("a") as file:
            file.write(json.dumps(result) + "\n")

    # -- one mutant

    def _try(self, mutant: Mutant, tree: ast.Module) -> Result:
        covering = self._in_order(mutant, self.map.covering(mutant) & self.items.keys())
        tests = covering[: self.wanted.tests]
        result = {name: getattr(mutant, name) for name in
                  ("id", "module", "function", "kind", "statement", "before", "after")}  # fmt: skip
        result |= {"line": mutant.lines[0], "tests": len(tests), "covering": len(covering)}
        began = time.monotonic()
        outcome, by = ("uncovered", "") if not tests else self._in_child(mutant, tree, tests)
        result |= {"outcome": outcome, "by": by, "seconds": round(time.monotonic() - began, 3)}
        self._note(result)
        return result

    def _note(self, result: Result) -> None:
        if result["outcome"] == "killed" and result["by"]:
            self.kills[result["module"], result["function"], result["by"]] += 1
            self.killers[result["module"]][result["by"]] += 1

    def _in_order(self, mutant: Mutant, tests: Iterable[str]) -> list[str]:
        """First what killed others of the function. Then in turn: those that go where few go in what the statement
        calls; what killed others of the module; those of the module's own file that go where few go within the
        function; those that together go everywhere in the module and in what it uses; one of the plainest. With
        `--own` before all of these: the whole of the module's own file.
        """
        place, module = (mutant.module, mutant.function), mutant.module
        if module not in self.spread:
            self.spread[module] = self.map.spread({module, *uses(module)} & set(MODULES))
        spread, name = self.spread[module], f"/test_{module.rpartition('.')[2]}.py"
        within = self._worth(tests, ((module, lines_of(module, mutant.function)),))
        called = self._worth(tests, tuple(called_by(mutant)))
        deep = [test for test in sorted(called, key=lambda test: (-called[test], test)) if called[test]]
        known = [test for test, _ in self.killers[module].most_common() if test in within]
        rare = sorted(within, key=lambda test: (name not in test, -within[test], test))
        wide = sorted(within, key=lambda test: (spread[test], test))
        plain = sorted(within, key=lambda test: (within[test], test))
        turns: list[str] = []
        for n, one in enumerate(plain):
            two = slice(2 * n, 2 * n + 2)
            turns += [*deep[two], *known[n : n + 1], *rare[two], *wide[two], one]
        if self.wanted.own:
            turns = [*(test for test in rare if name in test), *turns]
        return sorted(dict.fromkeys(turns), key=lambda test: -self.kills[*place, test])

    def _worth(self, tests: Iterable[str], parts: tuple[tuple[str, range], ...]) -> dict[str, float]:
        """How rare the lines are that each test executes in these parts of modules, for its time."""
        for part in parts:
            if part not in self.rarity:
                self.rarity[part] = self.map.rarity(*part)
        seconds = self.map.seconds
        return {test: sum(self.rarity[part][test] for part in parts) / (START_S + seconds[test]) for test in tests}

    def _in_child(self, mutant: Mutant, tree: ast.Module, tests: list[str]) -> tuple[str, str]:
        """killed: a test failed; timeout: a test ran far longer than it should; survived."""
        read_end, write_end = os.pipe()
        pid = os.fork()
        if pid == 0:
            os.close(read_end)
            self._child(mutant, tree, tests, write_end)
        os.close(write_end)
        told, waits = b"", 0
        while waits < WALL_S:
            if not select.select([read_end], [], [], 1.0)[0]:
                waits += 1
            elif piece := os.read(read_end, 1 << 16):
                told += piece
            else:
                break
        else:
            os.kill(pid, signal.SIGKILL)
        os.close(read_end)
        _, status = os.waitpid(pid, 0)
        names = told.decode().split("\n")
        if os.WIFSIGNALED(status):
            slow = os.WTERMSIG(status) in (signal.SIGPROF, signal.SIGKILL)
            return ("timeout" if slow else "killed"), names[-2] if len(names) > 1 else ""
        if os.WEXITSTATUS(status) == 0:
            return "survived", ""
        return "killed", names[-2] if len(names) > 1 else ""

    def _child(self, mutant: Mutant, tree: ast.Module, tests: Iterable[str], report: int) -> None:
        """Never returns. Tells each test before it runs it."""
        try:
            silence = os.open(os.devnull, os.O_WRONLY)
            os.dup2(silence, 1)
            os.dup2(silence, 2)
            resource.setrlimit(resource.RLIMIT_AS, (MEMORY_BYTES, MEMORY_BYTES))
            resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
            self.report = report
            install(mutant, tree)
            for test in tests:
                os.write(report, f"{test}\n".encode())
                signal.setitimer(signal.ITIMER_PROF, 2.0 + 10 * self.map.seconds[test])
                self._protocol(test)
            os._exit(0)
        except BaseException:  # whatever ends a child other than a passing test has seen the mutant
            os._exit(1)

    def _protocol(self, test: str) -> None:
        item = self.items[test]
        item.config.hook.pytest_runtest_protocol(item=item, nextitem=None)

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        if self.report >= 0 and report.failed:
            os._exit(1)


def read(path: Path) -> Iterator[Result]:
    """The last result of each mutant that there is today, in the order of the modules."""
    if path.exists():
        found = {r["id"]: r for r in map(json.loads, path.read_text().splitlines())}
        for name in MODULES:
            yield from (found[m.id] for m in mutants(name, ast.parse(file_of(name).read_text())) if m.id in found)


def summary(path: Path, survivors: bool) -> None:
    results = list(read(path))
    total: collections.Counter[str] = collections.Counter()
    print(f"{'module':32}{'mutants':>8}{'run':>8}{'killed':>8}{'timeout':>8}{'survived':>9}{'uncovered':>10}{'score':>8}")
    for name in MODULES:
        count = collections.Counter(r["outcome"] for r in results if r["module"] == name)
        count["all"] = len(mutants(name, ast.parse(file_of(name).read_text())))
        total += count
        print(_row(name, count))
    print(_row("all", total))
    for r in results if survivors else ():
        if r["outcome"] in ("survived", "uncovered"):
            where = f"{r['module']}:{r['line']} {r['function']} {r['outcome']} {r['tests']}/{r['covering']}"
            print(f"\n{where}\n    {r['statement']}\n    {r['kind']}: {r['before']}  →  {r['after']}")


def _row(name: str, count: collections.Counter[str]) -> str:
    good, run = count["killed"] + count["timeout"], sum(count.values()) - count["all"]
    score = f"{good / run:8.1%}" if run else f"{'–':>8}"
    columns = (count["all"], run, count["killed"], count["timeout"])
    return f"{name:32}" + "".join(f"{n:8}" for n in columns) + f"{count['survived']:9}{count['uncovered']:10}{score}"


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("modules", nargs="*", help="e.g. ledger storage.entries; default: all")
    parser.add_argument("--results", type=Path, default=ROOT / "runs/mutation/results.jsonl")
    parser.add_argument("--tests", type=int, default=20, help="of those that execute a line, so many at most")
    parser.add_argument("--again", action="store_true", help="survivors too: with more or changed tests")
    parser.add_argument("--own", action="store_true", help="first all tests of the module's own file")
    parser.add_argument("--seconds", type=float, default=float("inf"), help="stop after so long")
    parser.add_argument("--summary", action="store_true", help="run nothing, print the score of each module")
    parser.add_argument("--survivors", action="store_true", help="run nothing, print score and survivors")
    wanted = parser.parse_args()
    chosen = {name for name in MODULES for given in wanted.modules if name == given or name == f"chaos.audit.{given}"}
    if len(chosen) < len(set(wanted.modules)):
        parser.error(f"modules are {', '.join(MODULES)}")
    wanted.modules = [name for name in MODULES if not wanted.modules or name in chosen]
    if wanted.summary or wanted.survivors:
        summary(wanted.results, wanted.survivors)
        return 0
    wanted.results.parent.mkdir(parents=True, exist_ok=True)
    wanted.base = Path("/dev/shm" if Path("/dev/shm").is_dir() else wanted.results.parent) / f"mutation-{os.getpid()}"
    hypothesis.settings.register_profile("mutation", database=None, derandomize=True, deadline=None,
                                         phases=[hypothesis.Phase.explicit, hypothesis.Phase.generate])  # fmt: skip
    hypothesis.settings.load_profile("mutation")
    os.chdir(ROOT)
    options = ["-q", "-s", "-x", f"--basetemp={wanted.base}", "-o", "timeout=0", "-p", "no:cacheprovider"]
    try:
        pytest.main([*options, *TESTS], plugins=[Mutation(wanted)])
    finally:
        shutil.rmtree(wanted.base, ignore_errors=True)
    summary(wanted.results, survivors=False)
    return 0


if __name__ == "__main__":
    sys.exit(main())
