"""Runs to draw, altered as the auditor's tests alter them; the page of each; and a real Chromium that opens it."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from chromium import Browser, started
from page_kit import Page, duplicate_on, gap_on
from simulated_run import two_kills


@pytest.fixture(scope="session")
def good_run(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Valid, killed twice."""
    return two_kills(tmp_path_factory.mktemp("good") / "run").folder


@pytest.fixture(scope="session")
def gap_run(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Two samples of step 5 were never applied: positions 41 and 42."""
    return two_kills(tmp_path_factory.mktemp("gap") / "run", gap_on(1, 5, 0)).folder


@pytest.fixture(scope="session")
def duplicate_run(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Two samples of step 5 were applied twice: positions 45 and 46."""
    return two_kills(tmp_path_factory.mktemp("duplicate") / "run", duplicate_on(1, 5, 1)).folder


@pytest.fixture(scope="session")
def browser() -> Iterator[Browser]:
    """One for the session."""
    with started() as chromium:
        yield chromium


@pytest.fixture(scope="session")
def page(tmp_path_factory: pytest.TempPathFactory) -> Page:
    """page(run, …): the file that `killpoint report` writes of these folders."""
    from chaos.page.command import report

    def write(*folders: Path) -> Path:
        return report(folders, tmp_path_factory.mktemp("page") / "report.html", None, None).output

    return write
