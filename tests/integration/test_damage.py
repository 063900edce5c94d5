"""Damage to the store between a death and the restart: announced, passed over, and no reason to call a run invalid."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
from run_kit import events, explain, kill

from chaos.run import Outcome

SETTINGS = {"steps": 12, "save_every": 3}


def struck(file: str, how: str, rank: int = 0) -> list[dict[str, Any]]:
    """Rank 1 dies once the second checkpoint is published, and then a file of it is damaged."""
    death = kill("microbatch.forward", 15, rank=1)
    death["gate"] = {"role": "rank", "rank": 1, "point": "save.done", "hit": 2}
    damage = kill("recover.fence.after", 1, attempt=1, role="supervisor", kind="damage")
    return [death, {**damage, "damage": {"file": file, "how": how, "rank": rank}}]


@pytest.mark.parametrize(("file", "how"), [("shard", "flip"), ("ledger", "cut"), ("shard", "remove")])
def test_the_checkpoint_before_is_taken_and_the_verdict_is_valid(
    run: Callable[..., Outcome], file: str, how: str
) -> None:
    outcome = run(*struck(file, how, rank=1), **SETTINGS)
    assert outcome.verdict["verdict"] == "valid", explain(outcome)
    (recovery,) = outcome.verdict["recoveries"]
    assert (recovery["restored_step"], recovery["redo_steps"]) == (3, 4)
    fault = outcome.verdict["faults"][1]
    assert fault["receipt"]["kind"] == "damage"
    assert fault["observed"] is not None
    chosen = next(event for event in events(outcome.folder, "supervisor", "chosen") if event["attempt"] == 1)
    assert chosen["step"] == 3


def test_where_nothing_is_published_nothing_is_damaged_and_the_verdict_is_unknown(run: Callable[..., Outcome]) -> None:
    death, damage = struck("shard", "flip")
    del death["gate"]
    death["at"]["hit"] = 1
    outcome = run(death, damage, **SETTINGS)
    assert outcome.verdict["verdict"] == "unknown", explain(outcome)
    assert outcome.verdict["faults"][1]["receipt"] is None
