"""Invariant 10: what the log has and nobody recorded; invariant 3: groups of other ranks than the run's."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from audit_files import bodies, rechain
from judging import Judge
from simulated_run import F0, F1, Edit, Settings, Simulation, fault, two_kills

from chaos.audit import audit_run


def without(event: str, **fields: Any) -> Edit:
    def edit(kind: str, thing: Any) -> None:
        if kind == "event" and thing["event"] == event and all(thing.get(k) == v for k, v in fields.items()):
            thing["drop"] = True

    return edit


@pytest.mark.parametrize(
    ("edit", "words"),
    [
        (without("fenced", attempt=1), "no supervisor recorded the fence of attempt 1, entry 4"),
        (without("chosen", attempt=1), "no supervisor recorded what attempt 1 chose, entry 5"),
        (without("published", step=2), "no committer recorded the publication of s00000002-a0000"),
        (without("published", step=12), "no committer recorded the publication of s00000012-a0002"),
        (without("loaded", rank=1, attempt=2), "nothing says that rank 1 of attempt 2 verified s00000006-a0001"),
    ],
)
def test_an_entry_that_nobody_recorded(tmp_path: Path, judged: Judge, edit: Edit, words: str) -> None:
    judged(two_kills(tmp_path / "run", edit).folder, 10, "unknown", words)


def test_what_was_restored_at_the_end_must_be_told(tmp_path: Path, judged: Judge) -> None:
    """The last attempt has nothing left to train: only its restores say that the state was there."""
    late = fault(0, 0, "committer", None, "publish.after", hit=6)
    sim = Simulation(tmp_path / "run", Settings(faults=[late]), without("restored", attempt=1, rank=1))
    sim.start()
    sim.train(12)
    sim.kill(late)
    sim.recover()
    sim.finish()
    judged(sim.folder, 10, "unknown", "nothing says what rank 1 of attempt 1 restored")


def test_the_history_of_a_supervisor_that_nobody_else_names(tmp_path: Path, judged: Judge) -> None:
    sim = two_kills(tmp_path / "run")
    path = sim.folder / "history" / sim.supervisor.name
    path.rename(path.with_name("supervisor-h-7-7.jsonl"))
    path = path.with_name("supervisor-h-7-7.jsonl")
    lines = bodies(path)
    lines[0].update(pid=7, start_ticks=7)
    rechain(path, lines)
    judged(sim.folder, 10, "unknown", "the history of supervisor 101, which began attempt 0, is missing")


# -- what a kill may leave unrecorded


def test_a_publication_that_its_committer_did_not_live_to_record(tmp_path: Path) -> None:
    sim = Simulation(tmp_path / "run", Settings(faults=[F0, F1]), without("published", attempt=1, step=8))
    sim.start()
    sim.train(5)
    sim.kill(F0)
    sim.recover()
    sim.train(8)
    sim.kill(F1)
    sim.recover()
    sim.train(12)
    sim.finish()
    assert audit_run(sim.folder).verdict == "valid"


@pytest.mark.parametrize("recorded", [True, False])
@pytest.mark.parametrize("choose", [True, False])
def test_a_supervisor_that_did_not_live_to_record_its_entry(tmp_path: Path, choose: bool, recorded: bool) -> None:
    planned = fault(0, 0, "supervisor", None, "recover.choose.before")
    edit = (lambda kind, thing: None) if recorded else without("chosen" if choose else "fenced", attempt=0)
    sim = Simulation(tmp_path / "run", Settings(faults=[planned]), edit)
    sim.begin = sim.fence  # type: ignore[method-assign]
    sim.start()
    if choose:
        sim.choose()
    sim.receipt(planned, sim.supervisor)
    old = sim.supervisor
    sim.supervisor = sim._recorder("supervisor")
    sim.say(sim.supervisor, "resumed", previous=[{"file": old.name, **old.who, "head": old.head}])
    del sim.begin  # type: ignore[misc]
    sim.recover()
    sim.train(12)
    sim.finish()
    verdict = audit_run(sim.folder)
    assert verdict.verdict == "valid", verdict.invariants


# -- groups


@pytest.mark.parametrize(
    ("event", "change", "words"),
    [
        ("formed", {"world": 1}, "attempt 1 formed a group of 1 ranks, the run has 2"),
        ("joined", {"rank": 0}, "both joined attempt 1 as rank 0"),
        ("joined", {"rank": 2}, "joined attempt 1 as rank 2 of 2"),
    ],
)
def test_a_group_of_other_ranks(
    tmp_path: Path, judged: Judge, event: str, change: dict[str, int], words: str
) -> None:
    def edit(kind: str, thing: Any) -> None:
        if kind == "event" and (thing["event"], thing["attempt"], thing.get("rank", 1)) == (event, 1, 1):
            thing.update(change)

    judged(two_kills(tmp_path / "run", edit).folder, 3, "invalid", words)


@pytest.mark.parametrize(
    ("event", "number", "judgement", "words"),
    [
        ("step", 3, "unknown", "the history of rank 1 in attempt 1 lacks step 5"),
        ("restored", 10, "unknown", "nothing says what rank 1 of attempt 1 restored"),
    ],
)
def test_what_a_rank_recorded_under_no_attempt_is_of_none(
    tmp_path: Path, judged: Judge, event: str, number: int, judgement: str, words: str
) -> None:
    def edit(kind: str, thing: Any) -> None:
        if kind == "event" and thing["event"] == event and thing["attempt"] == 1 and thing.get("rank") == 1:
            thing["attempt"] = None

    judged(two_kills(tmp_path / "run", edit).folder, number, judgement, words)
