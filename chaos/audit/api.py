"""The entry point: read the evidence, then judge it."""

from __future__ import annotations

from pathlib import Path

from chaos.audit.read_run import read_evidence
from chaos.audit.verdict import Verdict, judge


def audit_run(run: Path, dataset: Path | None = None) -> Verdict:
    """Judges the run folder `run` by what is on disk; nothing is written and nothing is trusted.

    dataset: folder of the Parquet shards; by default the one that the run's history names. Damage of any kind
    is part of the verdict, never an exception.
    """
    return judge(read_evidence(run, dataset))
