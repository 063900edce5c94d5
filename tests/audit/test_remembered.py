"""What a checkpoint brings back is what its ranks had recorded when it was taken (invariant 4), without any twin."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from simulated_run import one_kill

from chaos.audit import audit_run
from chaos.audit.findings import Judgement


def restored(kind: str, thing: Any, rank: int) -> bool:
    return kind == "event" and thing["event"] == "restored" and (thing.get("rank"), thing.get("step")) == (rank, 4)


def restored_otherwise(kind: str, thing: Any) -> None:
    """Rank 1 brings back another model than it had after step 4, and its digests and the shards agree on it."""
    if restored(kind, thing, rank=1):
        thing["state"] = {**thing["state"], "model": "f" * 16}


def test_a_state_that_changed_while_it_was_written(tmp_path: Path) -> None:
    verdict = audit_run(one_kill(tmp_path / "run", restored_otherwise).folder)
    assert verdict.invariant(4).verdict is Judgement.INVALID
    assert verdict.invariant(4).witness == (
        "s00000004-a0000: its model, restored by rank 1 of attempt 1, is not what that rank recorded after step 4 in "
        "attempt 0"
    )


def test_a_state_that_did_not(tmp_path: Path) -> None:
    assert audit_run(one_kill(tmp_path / "run").folder).invariant(4).verdict is Judgement.VALID


@pytest.mark.parametrize("part", ["model", "optimizer"])
def test_a_part_that_only_one_of_them_has(tmp_path: Path, part: str) -> None:
    def lost(kind: str, thing: Any) -> None:
        if restored(kind, thing, rank=0):
            thing["state"] = {name: digest for name, digest in thing["state"].items() if name != part}

    verdict = audit_run(one_kill(tmp_path / "run", lost).folder)
    assert f"s00000004-a0000: its {part}, restored by rank 0" in verdict.invariant(4).witness
