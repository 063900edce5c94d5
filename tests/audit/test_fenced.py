"""Invariant 6: nothing of a fenced attempt, nothing before a choice, and one owner for each attempt."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from evidence_by_hand import Entries, begun, evidence
from judging import Judge
from simulated_run import F0, Settings, Simulation, two_kills

from chaos.audit import audit_run, fenced


def killed(tmp_path: Path) -> Simulation:
    sim = Simulation(tmp_path / "run", Settings(faults=[F0]))
    sim.start()
    sim.train(5)
    sim.kill(F0)
    return sim


def test_a_zombie_publishes_after_the_fence(tmp_path: Path, judged: Judge) -> None:
    sim = killed(tmp_path)
    zombie = {"name": "s00000006-a0000", "digest": "sha256:0", "step": 6}
    sim.recover()
    sim.append("publish", attempt=0, **zombie)
    sim.train(12)
    sim.finish()
    judged(sim.folder, 6, "invalid", "entry 6 is a publish of s00000006-a0000 by attempt 0 after the fence of "
           "attempt 1 (entry 4)")  # fmt: skip
    assert audit_run(sim.folder).invariant(2).verdict == "valid"


@pytest.mark.parametrize("kind", ["retire", "choose"])
def test_other_entries_after_the_fence(tmp_path: Path, judged: Judge, kind: str) -> None:
    sim = killed(tmp_path)
    sim.recover()
    own: dict[str, Any] = {"names": []} if kind == "retire" else {"parent": None, "candidates": []}
    sim.append(kind, attempt=0, **own)
    sim.train(12)
    sim.finish()
    judged(sim.folder, 6, "invalid", f"entry 6 is a {kind} by attempt 0 after the fence of attempt 1")


def test_a_publication_before_the_choice(tmp_path: Path, judged: Judge) -> None:
    sim = killed(tmp_path)
    sim.fence()
    sim.append("publish", name="s00000006-a0001", digest="sha256:0", step=6)
    sim.finish()
    judged(sim.folder, 6, "invalid", "entry 5 is a publish by attempt 1 before it chose")


def test_an_attempt_that_no_fence_began(tmp_path: Path, judged: Judge) -> None:
    sim = killed(tmp_path)
    sim.append("publish", attempt=3, name="s00000006-a0003", digest="sha256:0", step=6)
    sim.finish()
    judged(sim.folder, 6, "invalid", "is of attempt 3, which no fence began")


def test_a_log_that_begins_without_a_fence(tmp_path: Path, judged: Judge) -> None:
    sim = Simulation(tmp_path / "run")
    sim.append("retire", attempt=0, names=[])
    judged(sim.folder, 6, "invalid", "entry 0 (retire) is of attempt 0, which no fence began")


def test_a_fence_that_leaves_a_number_out(tmp_path: Path, judged: Judge) -> None:
    sim = killed(tmp_path)
    sim.attempt += 1
    sim.recover()
    sim.train(12)
    sim.finish()
    judged(sim.folder, 6, "invalid", "entry 4 fences attempt 2, the next one is 1")


def test_a_committer_that_says_otherwise_than_the_log(tmp_path: Path, judged: Judge) -> None:
    def edit(kind: str, thing: Any) -> None:
        if kind == "event" and thing["event"] == "published" and thing["step"] == 4:
            thing["digest"] = "sha256:0"

    judged(
        two_kills(tmp_path / "run", edit).folder,
        6,
        "invalid",
        "recorded s00000004-a0000 as published by entry 3",
    )


def test_two_supervisors_that_both_go_on(tmp_path: Path, judged: Judge) -> None:
    """Two resume at once; the one whose fence came first goes on with the other's attempt."""
    sim = killed(tmp_path)
    second = sim._recorder("supervisor")
    sim.say(second, "resumed", previous=[])
    sim.recover()
    sim.say(second, "training", 1)
    sim.say(second, "closed", heads=[])
    sim.train(12)
    sim.finish()
    judged(sim.folder, 6, "invalid", f"supervisor {second.pid} went on with attempt 1 (training), which the fence of "
           f"supervisor {sim.supervisor.pid} (entry 4) began")  # fmt: skip


def test_events_of_no_known_attempt_are_nobodys(tmp_path: Path, judged: Judge) -> None:
    sim = killed(tmp_path)
    sim.recover()
    sim.say(sim.supervisor, "training", None)
    sim.say(sim.supervisor, "training", 9)
    sim.train(12)
    sim.finish()
    judged(sim.folder, 6, "valid")


def test_one_attempt_is_not_judged(tmp_path: Path, judged: Judge) -> None:
    sim = Simulation(tmp_path / "run")
    sim.start()
    sim.train(12)
    sim.finish()
    judged(sim.folder, 6, "not_judged", "there was one attempt")


def test_the_first_attempt_alone_need_not_say_what_it_starts_from() -> None:
    log = Entries().fence().publish(2).fence().publish(4).fence().choose(None).publish(6)
    finding = fenced.check(evidence(log, begun=begun()))
    assert (finding.verdict, finding.witness) == ("invalid", "entry 3 is a publish by attempt 1 before it chose")
