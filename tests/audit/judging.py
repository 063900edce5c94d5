"""Asserting what a verdict says: the invariant, its judgement, and words of the witness."""

from __future__ import annotations

from collections.abc import Callable

from chaos.audit import Verdict

Judge = Callable[..., str]


def says(verdict: Verdict, number: int, judgement: str, *words: str) -> str:
    """Asserts what the verdict says of one invariant; returns the witness."""
    finding = verdict.invariant(number)
    assert finding.verdict == judgement, f"{number}: {finding}"
    for word in words:
        assert word in finding.witness, finding.witness
    return finding.witness
