"""Fixtures of the auditor's tests. `simulated_run` writes runs, `audit_files` their files; neither imports what is
tested. A test names the invariant and words of the witness: a right verdict for a wrong reason does not pass.
"""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

sys.path.insert(0, str(Path(__file__).parent))

from judging import Judge, says
from simulated_run import Simulation, two_kills

from chaos.audit import audit_run


@pytest.fixture
def run(tmp_path: Path) -> Simulation:
    """A whole, valid run with two kills."""
    return two_kills(tmp_path / "run")


@pytest.fixture
def judged() -> Judge:
    """judged(folder, number, judgement, *words): audits, and asserts that the overall verdict follows."""

    def judge(folder: Path, number: int, judgement: str, *words: str) -> str:
        verdict = audit_run(folder)
        witness = says(verdict, number, judgement, *words)
        if judgement == "invalid":
            assert verdict.verdict == "invalid"
        if judgement == "unknown":
            assert verdict.verdict != "valid"
        return witness

    return judge
