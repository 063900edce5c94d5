"""The auditor beside a slow, obvious reference, over lineages drawn at random and altered.

The long run, of so many lineages for each alteration, and of others each time:
`LINEAGES=2000 python -m pytest tests/audit/test_reference.py --timeout 0`
"""

from __future__ import annotations

import os
import re
from pathlib import Path
from typing import Any
from uuid import uuid4

import pytest
from hypothesis import HealthCheck, given, note, settings
from lineage_reference import Store, newest_verified, no_gaps_no_duplicates
from lineages import KINDS, Lineage, lineages, write

from chaos.audit import audit_run
from chaos.audit.findings import Finding

EXAMPLES = int(os.environ.get("LINEAGES", "6"))
AT = r"at positions? (\d+)(?:–\d+)? \(ids (\d+)[^)]*\) (?:was|were) "
ROW = r"step (-?\d+) of attempt (\d+) consumed position (-?\d+) \(sample (-?\d+)\), "
WITNESS = {
    "repeat": AT + r"applied (?:twice|\d+ times)(?: \(\d+ in all\))?: ((?:at step \d+ by attempt \d+(?:, | and )?)+)",
    "gap": AT + "never applied",
    "sample": r"at step (-?\d+) attempt (\d+) consumed sample (-?\d+) at position (\d+), the plan",
    "content": r"the content of sample (-?\d+), consumed at step (-?\d+) by attempt (\d+) \(position (-?\d+)\)",
    "beyond": ROW + "outside of",
    "step": ROW + "which is not that step's",
    "microbatch": ROW + "in another microbatch",
}  # fmt: skip


def said(finding: Finding, kind: str) -> Any:
    """What the witness names as the first of a kind, in the reference's form; None if it does not speak of it."""
    match = re.search(WITNESS[kind], finding.witness)
    if match is None:
        return None
    if kind == "repeat":
        spots = [(int(step), int(by)) for step, by in re.findall(r"at step (\d+) by attempt (\d+)", match[3])]
        return int(match[1]), int(match[2]), spots
    numbers = tuple(map(int, match.groups()))
    order = {"sample": (0, 1, 3, 2), "content": (1, 2, 3, 0)}.get(kind, range(len(numbers)))
    return tuple(numbers[i] for i in order)


def compare(lineage: Lineage, folder: Path) -> str:
    world = write(lineage, folder)
    verdict, store = audit_run(folder), Store(folder)
    chosen, rows = newest_verified(store), no_gaps_no_duplicates(store, world)
    newest, ledger = verdict.invariant(2), verdict.invariant(3)
    note(f"2: {newest}\n   {chosen}\n3: {ledger}\n   {rows}")
    assert newest.verdict == chosen.verdict
    assert ledger.verdict == rows.verdict
    if "attempt" in chosen.first:
        assert re.match(rf"attempt {chosen.first['attempt']}\b", newest.witness)
    shortened = "more of the kind" in ledger.witness
    for kind in WITNESS:
        told = said(ledger, kind)
        if told is not None or not shortened:
            assert told == rows.first.get(kind), kind
    return chosen.verdict if rows.verdict == "valid" else rows.verdict


@pytest.mark.no_cover
@pytest.mark.parametrize("kind", KINDS)
def test_auditor_and_reference_agree(tmp_path: Path, kind: str) -> None:
    told: list[str] = []

    @settings(max_examples=EXAMPLES, deadline=None, derandomize="LINEAGES" not in os.environ, database=None,
              suppress_health_check=list(HealthCheck))  # fmt: skip
    @given(lineages(kind))
    def agree(lineage: Lineage) -> None:
        told.append(compare(lineage, tmp_path / f"{len(told)}-{uuid4()}"))

    agree()
    if kind == "nothing":
        assert not {"invalid", "unknown"} & set(told)
    else:  # or nothing was compared
        assert {"invalid", "unknown"} & set(told)
