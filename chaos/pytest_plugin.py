"""`pytest --killpoint EXPERIMENT`: a check of one's trainer as an item of one's own test session.

Every pytest run loads this module, so it imports nothing that takes time. The check is a process of its own: Ray, its
signals and its deadlines have nothing to do with those of the session.
"""

from __future__ import annotations

import json
import shutil
import signal
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

_GRACE_S = 30.0  # for a check that is interrupted to end its processes
_OPTION = "--killpoint"


class NotValid(Exception):
    """The check did not end valid. The message says why, and what shows it again."""


def pytest_addoption(parser: pytest.Parser) -> None:
    """The plugin's options. Nothing happens without the first."""
    group = parser.getgroup("killpoint")
    group.addoption(
        _OPTION, action="append", default=[], metavar="EXPERIMENT",
        help="kill the training of this experiment file at its kill points, and fail unless every recovery is valid",
    )  # fmt: skip
    group.addoption(
        f"{_OPTION}-budget", default=None, metavar="TIME", help="60s, 5m, 1h; without it every point once and no more"
    )
    group.addoption(
        f"{_OPTION}-point", action="append", default=[], metavar="POINT", help="only kills at this point; repeatable"
    )


def pytest_collection_modifyitems(session: pytest.Session, config: pytest.Config, items: list[pytest.Item]) -> None:
    """One item for each experiment, after the project's own tests."""
    for name in config.getoption(_OPTION):
        path = (config.invocation_params.dir / name).resolve()
        if not path.is_file():
            raise pytest.UsageError(f"{_OPTION} {name}: there is no such file")
        file = _ExperimentFile.from_parent(session, path=path)
        report = file.ihook.pytest_make_collect_report(collector=file)
        file.ihook.pytest_collectreport(report=report)  # so that it is counted as collected
        items.extend(report.result)


class _ExperimentFile(pytest.File):
    """An experiment file of the command line."""

    def collect(self) -> Iterator[pytest.Item]:
        yield _Check.from_parent(self, name="killpoint")


class _Check(pytest.Item):
    """`killpoint check` of one experiment."""

    def __init__(self, **given: Any) -> None:
        super().__init__(**given)
        if self.config.pluginmanager.hasplugin("timeout"):
            self.add_marker(pytest.mark.timeout(0))  # it has a budget, and each trial a deadline

    def runtest(self) -> None:
        """Raises NotValid. A check that is valid leaves nothing behind."""
        folder = self._folder()
        text, status = self._run(folder / "check")
        try:
            found = json.loads(text)
        except ValueError:
            raise NotValid("the check could not be made; see what it wrote to standard error") from None
        coverage = "; ".join(found["coverage_text"])
        self.user_properties += [("killpoint", found["verdict"]), ("killpoint_coverage", coverage)]
        self.add_report_section("call", "killpoint", coverage)
        if status != 0:
            raise NotValid("\n".join(_lines(found)))
        shutil.rmtree(folder, ignore_errors=True)

    def repr_failure(self, excinfo: pytest.ExceptionInfo[BaseException], style: Any = None) -> Any:
        """What the check says, without the frames of this plugin."""
        if isinstance(excinfo.value, NotValid):
            return str(excinfo.value)
        return super().repr_failure(excinfo, style)

    def reportinfo(self) -> tuple[Path, int | None, str]:
        """Where pytest says that the item is."""
        return self.path, None, f"killpoint check {self.path.name}"

    def _run(self, folder: Path) -> tuple[str, int]:
        option = self.config.getoption
        budget, points = option(f"{_OPTION}-budget"), option(f"{_OPTION}-point")
        command = [sys.executable, "-P", "-m", "chaos.cli", "check", str(self.path), "--json", "--output", str(folder)]
        command += ["--budget", budget] if budget else []
        command += [word for point in points for word in ("--point", point)]
        command += ["--fail-fast"] if option("maxfail", 0) == 1 else []
        process = subprocess.Popen(command, stdout=subprocess.PIPE, text=True, cwd=self.config.invocation_params.dir)
        try:
            text, _nothing = process.communicate()
        except BaseException:  # Ctrl-C, or a timeout of the session's
            process.send_signal(signal.SIGINT)
            try:
                process.communicate(timeout=_GRACE_S)
            except subprocess.TimeoutExpired:
                process.kill()
                process.communicate()
            raise
        return text, process.returncode

    def _folder(self) -> Path:
        """A new folder, below pytest's own cache where there is one: what failed has to be there to be run again."""
        cache = getattr(self.config, "cache", None)
        return Path(tempfile.mkdtemp(prefix="run-", dir=None if cache is None else cache.mkdir("killpoint")))


def _lines(found: dict[str, Any]) -> Iterator[str]:
    yield f"killpoint: {found['verdict']}"
    for each in found["failing"]:
        yield f"{each['trial']}: {each['ending']}: {each['why']}"
        yield f"  reproduce: {each['reproduce']}"
    yield from found["coverage_text"]
