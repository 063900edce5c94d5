"""Faults that end no process: each is seen by what it did, explains no death, and needs its receipt."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import audit_files as files
import pytest
from judging import Judge
from simulated_run import Settings, Simulation, fault

from chaos.audit import audit_run

SLOW = fault(0, 0, "rank", 1, "microbatch.forward", kind="slow", slow={"delay_s": 0.05, "passages": 2})
OUTAGE = fault(0, 0, "rank", 1, "shard.half", kind="outage", outage={"operations": 2, "for_s": None})
STRAY = fault(0, 1, "supervisor", None, "recover.fence.after", kind="stray")
KILL = fault(1, 0, "rank", 1, "step.end")


def seen(folder: Path) -> Any:
    return audit_run(folder).to_json()["faults"][0]["observed"]


def slowed(
    folder: Path, *, passages: int = 2, took_ms: float = 120.0, train_s: float = 0.1, receipt: bool = True,
    die: bool = False, spans: bool = False, planned: dict[str, Any] = SLOW,
) -> Simulation:  # fmt: skip
    """spans: the last delay is in the step after that of the first."""

    def edit(kind: str, thing: dict[str, Any]) -> None:
        if kind == "event" and thing["event"] == "step" and thing["step"] in (4, 5):
            thing["train_s"] = train_s

    sim = Simulation(folder, Settings(faults=[planned]), edit)
    sim.start()
    sim.train(3)
    proc = sim.of("rank", 1)
    if receipt:
        sim.receipt(planned, proc.history, slow=planned["slow"])
    sim.tick(took_ms)
    if spans:
        sim.train(4)
    if passages:
        sim.say(proc.history, "slowed", 0, fault="f0", passages=passages)
    if die:
        sim.exited(proc, 9)
        sim.recover()
    sim.train(12)
    sim.finish()
    return sim


def test_a_delay_shows_in_the_steps_that_it_lies_in(tmp_path: Path) -> None:
    sim = slowed(tmp_path / "run")
    assert audit_run(sim.folder).verdict == "valid"
    assert seen(sim.folder)["how"] == "0.10 s in 2 passages"


def test_a_delay_may_lie_in_several_steps(tmp_path: Path) -> None:
    sim = slowed(tmp_path / "run", train_s=0.07, spans=True)
    assert audit_run(sim.folder).verdict == "valid"
    assert seen(sim.folder)["how"] == "0.14 s in 2 passages"


def test_a_delay_outside_the_steps_shows_between_receipt_and_end(tmp_path: Path) -> None:
    sim = slowed(tmp_path / "run", train_s=0.0, planned={**SLOW, "point": "shard.half"})
    assert audit_run(sim.folder).verdict == "valid"
    assert seen(sim.folder)["how"] == "0.12 s in 2 passages"


@pytest.mark.parametrize("planned", [{**SLOW, "slow": None}, {**SLOW, "kind": "outage", "slow": None}])
def test_a_disturbance_of_no_stated_length_was_not_seen(tmp_path: Path, judged: Judge, planned: Any) -> None:
    sim = slowed(tmp_path / "run", planned=planned)
    assert seen(sim.folder) is None
    judged(sim.folder, 10, "unknown", "fault f0", "has a receipt, but nothing that was recorded shows it")


@pytest.mark.parametrize("how", [{"passages": 1}, {"passages": 0}, {"took_ms": 50.0}, {"train_s": 0.09}])
def test_a_delay_that_is_too_short_or_has_no_end_was_not_seen(tmp_path: Path, judged: Judge, how: Any) -> None:
    sim = slowed(tmp_path / "run", **how)
    assert seen(sim.folder) is None
    judged(sim.folder, 10, "unknown", "has a receipt, but nothing that was recorded shows it")


def test_a_delay_without_a_receipt(tmp_path: Path, judged: Judge) -> None:
    judged(slowed(tmp_path / "run", receipt=False).folder, 10, "unknown", "has delays of f0, and there is no receipt")


def test_a_delay_explains_no_death(tmp_path: Path, judged: Judge) -> None:
    judged(slowed(tmp_path / "run", die=True).folder, 10, "unknown", "(rank 1) died by signal 9, and no receipt or")


def failed(folder: Path, errors: int, *, receipt: bool = True, rank: int = 1) -> Simulation:
    sim = Simulation(folder, Settings(faults=[OUTAGE]))
    sim.start()
    sim.train(3)
    if receipt:
        sim.receipt(OUTAGE, sim.of("rank", 1).history, outage=OUTAGE["outage"])
    for _ in range(errors):
        sim.say(sim.of("rank", rank).history, "store_failed", 0, where="shards/x", what="Input/output error")
    sim.train(12)
    sim.finish()
    return sim


def test_an_outage_shows_in_every_error_of_that_process(tmp_path: Path, judged: Judge) -> None:
    sim = failed(tmp_path / "run", 2)
    assert audit_run(sim.folder).verdict == "valid"
    assert seen(sim.folder)["how"] == "2 errors"
    assert seen(failed(tmp_path / "few", 1).folder) is None
    other = failed(tmp_path / "other", 2, rank=0)
    assert seen(other.folder) is None
    judged(other.folder, 10, "unknown", "says that shards/x was unavailable, and no receipt accounts for it")


def test_errors_of_the_store_without_a_receipt(tmp_path: Path, judged: Judge) -> None:
    judged(failed(tmp_path / "run", 2, receipt=False).folder, 10, "unknown", "did not fire", "shards/x was unavailable")


def strayed(
    folder: Path, *, receipt: bool = True, there: bool = True, run: str = "run-9", other: bool = False
) -> Simulation:
    """other: what lies there is not what the receipt announced."""
    sim = Simulation(folder, Settings(faults=[STRAY, KILL]))
    sim.start()
    sim.train(5)
    sim.kill(KILL)
    newest = sim.folder / "store" / "manifests" / f"{sim.branch[-1]['name']}.json"
    body = {**json.loads(newest.read_bytes())["body"], "run": run, "name": "s00000005-a0000", "step": 5}
    data, digest = files.seal(body)
    path = "store/manifests/s00000005-a0000.json"
    sim.fence()
    if receipt:
        sim.receipt(STRAY, sim.supervisor, path=path, offset=0, before=None, after=digest)
    if there:
        (sim.folder / path).write_bytes(files.seal({**body, "cursor": 1})[0] if other else data)
    sim.choose()
    sim.restore()
    sim.train(12)
    sim.finish()
    return sim


def test_a_stray_is_reported_and_was_not_taken(tmp_path: Path) -> None:
    verdict = audit_run(strayed(tmp_path / "run").folder)
    assert verdict.verdict == "valid", [i.finding for i in verdict.invariants]
    assert verdict.strays == ("manifests/s00000005-a0000.json",)
    assert verdict.to_json()["faults"][0]["observed"]["how"] == "not chosen"


def test_a_stray_without_a_receipt(tmp_path: Path, judged: Judge) -> None:
    sim = strayed(tmp_path / "run", receipt=False)
    judged(sim.folder, 10, "unknown", "store/manifests/s00000005-a0000.json is of another run, and no receipt")
    ours = strayed(tmp_path / "ours", receipt=False, run="run-1")  # as a kill leaves them behind: no other run's
    witness = judged(ours.folder, 10, "unknown", "did not fire")
    assert "another run" not in witness


@pytest.mark.parametrize("how", [{"there": False}, {"other": True}])
def test_a_receipt_of_a_stray_that_is_not_there(tmp_path: Path, judged: Judge, how: Any) -> None:
    sim = strayed(tmp_path / "run", **how)
    judged(sim.folder, 10, "unknown", "fault f0", "has a receipt, but nothing that was recorded shows it")
