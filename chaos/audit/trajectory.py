"""Invariant 5, same trajectory: the recovered run equals its twin. Not judged: nothing here runs a twin yet."""

from __future__ import annotations

from chaos.audit.evidence import Evidence
from chaos.audit.findings import Finding, Judgement

ID, NAME = 5, "same trajectory"


def check(evidence: Evidence) -> Finding:
    """Says that this was not looked at."""
    return Finding(Judgement.NOT_JUDGED, "the twin is not part of this version")
