"""What a checkpoint brings back is what its ranks had recorded when it was taken (invariant 4), without any twin."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from evidence_by_hand import chose, evidence, fence, published, said, step
from simulated_run import one_kill

from chaos.audit import audit_run
from chaos.audit.events import Event, Restored, StepDone
from chaos.audit.evidence import Entry, Publish
from chaos.audit.findings import Judgement
from chaos.audit.remembered import changed_since


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


# -- one thing at a time

NAME, DIGEST = "s00000004-a0000", "sha256:4"
OTHER = "s00000004-m0001-a0000"
BEFORE = {"model": "m", "optimizer": "o"}


def log(name: str = NAME, attempt: int = 1, parent: bool = True) -> list[Entry]:
    """An attempt 0 that published a checkpoint of step 4, and one that chose it."""
    first = Publish(1, 0, name, DIGEST, 4)
    return [fence(0, 0), first, fence(2, attempt), chose(3, attempt, first if parent else None)]


def took(state: dict[str, str], rank: int = 0, *, name: str | None = NAME, number: int = 4) -> Event[Restored]:
    return said(Restored(rank, name, DIGEST, number, 32, {}, state), 1)


def had(state: dict[str, str], rank: int = 0, *, number: int = 4, attempt: int | None = 0) -> Event[StepDone]:
    return said(step(rank, number, state=state), attempt, f"worker-{rank}")


def told(*events: Event[Any], entries: list[Entry] | None = None) -> list[str]:
    return list(changed_since(evidence(events=events, entries=log() if entries is None else entries)))


def words(parts: str, are: str = "is", rank: int = 0) -> str:
    return (
        f"{NAME}: its {parts}, restored by rank {rank} of attempt 1, {are} not what that rank recorded after step 4 in "
        "attempt 0"
    )


def test_each_part_that_differs_is_named() -> None:
    assert told(had(BEFORE), took(BEFORE)) == []
    assert told(had(BEFORE), took({**BEFORE, "model": "x"})) == [words("model")]
    assert told(had(BEFORE), took({"model": "x", "optimizer": "y"})) == [words("model and optimizer", "are")]
    assert told(had(BEFORE), took({"model": "m"})) == [words("optimizer")]
    assert told(had(BEFORE), took({**BEFORE, "best": "b"})) == [words("best")]


def test_each_rank_is_compared_with_itself() -> None:
    other = {"model": "n"}
    assert told(had(BEFORE), had(other, 1), took(BEFORE), took(other, 1)) == []
    assert told(had(BEFORE), had(other, 1), took(BEFORE), took(BEFORE, 1)) == [words("model and optimizer", "are", 1)]


def test_of_several_records_of_the_step_the_last_one_counts() -> None:
    assert told(had({"model": "x"}), had(BEFORE), had({"model": "y"}, number=5), took(BEFORE)) == []


@pytest.mark.parametrize(
    "records",
    [[], [had({}, 1)], [had({}, number=3), had({}, number=5)], [had({}, attempt=1)], [had({}, attempt=None)]],
)
def test_without_a_record_of_the_rank_after_that_step_nothing_is_told(records: list[Event[StepDone]]) -> None:
    assert told(*records, took(BEFORE)) == []


def test_a_rank_without_a_record_hides_nothing_of_the_next() -> None:
    assert told(had(BEFORE, 1), took({}), took({"model": "m"}, 1)) == [words("optimizer", rank=1)]


@pytest.mark.parametrize("what", [{"name": "s00000005-a0000"}, {"name": None}, {"number": 5}])
def test_what_was_not_the_chosen_checkpoint_is_not_compared_with_it(what: dict[str, Any]) -> None:
    assert told(had(BEFORE), took({}, **what)) == []
    assert told(had(BEFORE), had(BEFORE, 1), took({}, **what), took({"model": "m"}, 1)) == [words("optimizer", rank=1)]


def test_a_checkpoint_inside_a_step_and_a_start_from_nothing_are_not_compared() -> None:
    assert told(had(BEFORE), took({}, name=OTHER), entries=log(OTHER)) == []
    assert told(had(BEFORE), took({}), entries=log(parent=False)) == []


def test_an_attempt_that_is_not_compared_hides_nothing_of_the_next() -> None:
    inside, whole = published(1, 0, 4, 1), Publish(2, 0, NAME, DIGEST, 4)
    entries: list[Entry] = [
        fence(0, 0), inside, whole, fence(3, 1), chose(4, 1, inside), fence(5, 2), chose(6, 2, whole),
    ]  # fmt: skip
    later = Event("worker", 9, 9, 9, 2, took({"model": "m"}).what)
    found = told(had(BEFORE), took({}, name=OTHER), later, entries=entries)
    assert found == [words("optimizer").replace("of attempt 1", "of attempt 2")]
