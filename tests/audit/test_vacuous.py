"""Invariant 10, the faults: planned, receipted, seen; and no death that nobody accounts for."""

from __future__ import annotations

import json
import re
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from audit_files import Recorder, bodies, rechain, seal
from judging import Judge
from simulated_run import F0, F1, Edit, Settings, Simulation, fault, two_kills

from chaos.audit import audit_run, vacuous
from chaos.audit.disturbance_events import Noticed
from chaos.audit.events import (
    Closed,
    Event,
    ExitConfirmed,
    Exited,
    Fenced,
    Finished,
    GaveUp,
    Killing,
    Opened,
    Previous,
    ProcessNamed,
    Restored,
    Resumed,
    Spawned,
    StepDone,
)
from chaos.audit.evidence import Evidence, HistoryFile, Problem
from chaos.audit.facts import Head
from chaos.audit.read_run import read_evidence
from chaos.audit.steps import Steps
from chaos.audit.verdict import judge


def on_receipt(change: Any, of: str = "f1") -> Edit:
    return lambda kind, thing: change(thing) if kind == "receipt" and thing["fault"] == of else None


def on_event(name: str, change: Any) -> Edit:
    return lambda kind, thing: change(thing) if kind == "event" and thing["event"] == name else None


def drop(thing: dict[str, Any]) -> None:
    thing["drop"] = True


def test_an_injector_that_does_nothing(tmp_path: Path, judged: Judge) -> None:
    sim = Simulation(tmp_path / "run", Settings(faults=[F0]))
    sim.start()
    sim.train(12)
    sim.finish()
    judged(
        sim.folder, 10, "unknown", "fault f0 (sigkill of rank 1 at step.end hit 5 of attempt 0) did not fire"
    )
    fault_seen = audit_run(sim.folder).to_json()["faults"][0]
    assert (fault_seen["receipt"], fault_seen["observed"]) == (None, None)


def test_a_death_without_a_receipt(tmp_path: Path, judged: Judge) -> None:
    run = two_kills(tmp_path / "run", on_receipt(drop))
    judged(run.folder, 10, "unknown", "fault f1 (sigkill of committer at publish.before hit 2 of attempt 1) "
           "did not fire", "(committer) died by signal 9, and no receipt or recorded kill accounts for it")  # fmt: skip


@pytest.mark.parametrize(
    ("signal", "code", "words"), [(11, None, "by signal 11"), (None, 3, "with exit code 3")]
)
def test_a_process_that_died_of_itself(
    tmp_path: Path, judged: Judge, signal: int | None, code: int | None, words: str
) -> None:
    sim = Simulation(tmp_path / "run")
    sim.start()
    sim.train(5)
    proc = sim.of("rank", 1)
    sim.exited(proc, signal, code)
    sim.recover()
    sim.train(12)
    sim.finish()
    judged(sim.folder, 10, "unknown", f"process {proc.history.pid} (rank 1) died {words}")


def test_an_exit_with_code_0_is_no_death(tmp_path: Path, judged: Judge) -> None:
    sim = Simulation(tmp_path / "run")
    sim.start()
    sim.train(12)
    sim.say(sim.of("rank", 1).history, "closed")
    sim.exited(sim.of("rank", 1), None, 0)
    sim.finish()
    assert audit_run(sim.folder).verdict == "valid"


@pytest.mark.parametrize(
    "change",
    [
        {"pid": 9999},
        {"start_ticks": 1},
    ],
)
def test_a_receipt_without_a_death(tmp_path: Path, judged: Judge, change: dict[str, int]) -> None:
    def edit(receipt: dict[str, Any]) -> None:
        target = receipt["target"]
        target.update(change)
        receipt["history"]["file"] = f"committer-h-{target['pid']}-{target['start_ticks']}.jsonl"

    run = two_kills(tmp_path / "run", on_receipt(edit))
    judged(run.folder, 10, "unknown", "fault f1", "has a receipt, but nobody saw process")


@pytest.mark.parametrize(
    ("change", "words"),
    [
        (lambda t: t.update(history=None), "does not say how far the struck process had recorded"),
        (lambda t: t["target"].update(pid=9999), "struck process 9999, but its receipt was written beside history/"),
        (lambda t: t.update(boot="other"), "has a receipt of another boot than history/committer-h-107-1070.jsonl"),
    ],
)
def test_a_receipt_is_written_beside_the_struck_processs_history(
    tmp_path: Path, judged: Judge, change: Any, words: str
) -> None:
    judged(two_kills(tmp_path / "run", on_receipt(change)).folder, 10, "unknown", "fault f1", words)


def test_the_signal_must_match(tmp_path: Path, judged: Judge) -> None:
    def edit(kind: str, thing: Any) -> None:
        if kind == "event" and thing["event"] in ("exited", "exit_confirmed") and thing["pid"] == 107:
            thing["signal"] = 15

    run = two_kills(tmp_path / "run", edit)
    judged(run.folder, 10, "unknown", "fault f1", "nobody saw process 107 end as it says")


def test_the_supervisors_confirmation_is_enough(tmp_path: Path, judged: Judge) -> None:
    def edit(kind: str, thing: Any) -> None:
        if kind == "event" and thing["event"] == "exited" and thing["pid"] == 107:
            thing["drop"] = True

    judged(two_kills(tmp_path / "run", edit).folder, 10, "valid")


@pytest.mark.parametrize(
    ("change", "words"),
    [
        ({"run": "another"}, "was planned with run run-1, its receipt has another"),
        ({"kind": "hang"}, "was planned with kind sigkill, its receipt has hang"),
        ({"attempt": 0}, "was planned with attempt 1, its receipt has 0"),
        ({"point": "publish.after"}, "was planned with point publish.before"),
        ({"hit": 1}, "was planned with hit 2, its receipt has 1"),
        ({"role": "rank"}, "was planned with role committer"),
    ],
)
def test_a_receipt_of_something_else(
    tmp_path: Path, judged: Judge, change: dict[str, Any], words: str
) -> None:
    judged(two_kills(tmp_path / "run", on_receipt(lambda t: t.update(change))).folder, 10, "unknown", words)


@pytest.mark.parametrize(
    "change",
    [
        {"gate": None},
        {"gate": {**F0["gate"], "held": False}},
        {"gate": {**F0["gate"], "hit": 9, "held": True}},
    ],
)
def test_a_gate_must_have_been_held(tmp_path: Path, judged: Judge, change: dict[str, Any]) -> None:
    run = two_kills(tmp_path / "run", on_receipt(lambda t: t.update(change), "f0"))
    judged(
        run.folder, 10, "unknown", "was planned behind a gate at commit.collected, its receipt does not say"
    )


def test_a_rank_that_was_planned_must_be_the_one(tmp_path: Path, judged: Judge) -> None:
    run = two_kills(tmp_path / "run", on_receipt(lambda t: t.update(rank=0), "f0"))
    judged(run.folder, 10, "unknown", "was planned with rank 1, its receipt has 0")


def test_a_receipt_of_a_fault_that_was_not_planned(tmp_path: Path, judged: Judge) -> None:
    sim = Simulation(tmp_path / "run")
    sim.start()
    sim.train(5)
    sim.kill(F0)
    sim.recover()
    sim.train(12)
    sim.finish()
    judged(sim.folder, 10, "unknown", "there is a receipt of f0, which was not planned")


def test_a_receipt_that_cannot_be_read(run: Any, judged: Judge) -> None:
    path = run.folder / "history/receipts/f0.json"
    path.write_bytes(path.read_bytes()[:-3])
    judged(
        run.folder, 10, "unknown", "history/receipts/f0.json is no sealed file", "fault f0", "has no receipt"
    )


def test_a_receipt_under_another_name(run: Any, judged: Judge) -> None:
    folder = run.folder / "history/receipts"
    (folder / "f0.json").rename(folder / "f7.json")
    judged(run.folder, 10, "unknown", "history/receipts/f7.json is no receipt of fault f7")


# -- the other kinds of fault


def struck(tmp_path: Path, planned: dict[str, Any], edit: Edit = lambda kind, thing: None) -> Simulation:
    sim = Simulation(tmp_path / "run", Settings(faults=[planned]), edit)
    sim.start()
    sim.train(5)
    sim.kill(planned)
    sim.recover()
    sim.train(12)
    sim.finish()
    return sim


HANG = fault(0, 0, "rank", 0, "step.begin", kind="hang")
RAISE = fault(0, 0, "rank", 0, "step.begin", kind="exception")


@pytest.mark.parametrize(("planned", "how"), [(HANG, "stopped"), (RAISE, "raised")])
def test_hangs_and_exceptions(tmp_path: Path, planned: dict[str, Any], how: str) -> None:
    verdict = audit_run(struck(tmp_path, planned).folder)
    assert verdict.verdict == "valid"
    assert verdict.faults[0].observed is not None
    assert verdict.faults[0].observed.how == how


@pytest.mark.parametrize(
    ("planned", "change"),
    [
        (HANG, {"how": "raised"}),
        (HANG, {"drop": True}),
        (RAISE, {"how": "actor_died"}),
        (RAISE, {"detail": "injected fault f01"}),
        (RAISE, {"detail": "injected fault xf0"}),
    ],
)
def test_another_detection_than_the_fault_causes(
    tmp_path: Path, judged: Judge, planned: dict[str, Any], change: dict[str, Any]
) -> None:
    sim = struck(tmp_path, planned, on_event("detected", lambda t: t.update(change)))
    judged(sim.folder, 10, "unknown", "nobody saw process")


def test_a_kill_that_only_the_launcher_saw(tmp_path: Path, judged: Judge) -> None:
    sim = struck(tmp_path, {**F0, "gate": None}, on_event("detected", drop))
    judged(sim.folder, 10, "unknown", "fault f0", "nobody saw process")


@pytest.mark.parametrize("role", ["rank", "committer"])
def test_a_forged_receipt_of_a_process_that_was_killed_at_the_end(
    tmp_path: Path, judged: Judge, role: str
) -> None:
    planned = fault(0, 0, role, 1 if role == "rank" else None, "step.end" if role == "rank" else "publish.before")
    sim = Simulation(tmp_path / "run", Settings(faults=[planned]))
    sim.start()
    sim.train(12)
    sim.receipt(planned, sim.of(role, planned["rank"]).history)
    sim.finish()
    judged(sim.folder, 10, "unknown", "fault f0 (sigkill of", "nobody saw process")


def test_a_forged_detection_after_the_supervisors_own_kill(tmp_path: Path, judged: Judge) -> None:
    planned = {**F0, "gate": None}
    sim = Simulation(tmp_path / "run", Settings(faults=[planned]))
    sim.start()
    sim.train(12)
    proc = sim.of("rank", 1)
    sim.receipt(planned, proc.history)
    sim.end(proc)
    sim.say(sim.supervisor, "detected", 0, role="rank", rank=1, how="actor_died", detail="", **proc.history.who)
    sim.finish()
    judged(sim.folder, 10, "unknown", "fault f0", "nobody saw process")


def test_a_data_task_is_known_by_its_receipt(tmp_path: Path) -> None:
    planned = fault(0, 0, "data", 0, "data.read")
    sim = Simulation(tmp_path / "run", Settings(faults=[planned]))
    sim.start()
    sim.train(5)
    sim.receipt(planned, None)
    sim.train(12)
    sim.finish()
    verdict = audit_run(sim.folder)
    assert verdict.verdict == "valid"
    assert verdict.faults[0].observed is not None
    assert verdict.faults[0].observed.how == "receipt only"
    assert any("no launcher watches data tasks" in line for line in verdict.unseen)


def test_a_standby_serves_no_attempt(tmp_path: Path) -> None:
    planned = fault(0, 0, "standby", None, "standby.warm")
    sim = Simulation(
        tmp_path / "run", Settings(faults=[planned]), on_receipt(lambda t: t.update(attempt=-1), "f0")
    )
    sim.start()
    sim._process("standby", None)
    sim.train(5)
    sim.kill(planned)
    sim.train(12)
    sim.finish()
    assert audit_run(sim.folder).invariant(10).verdict == "valid"


def test_a_fault_at_a_time(tmp_path: Path) -> None:
    planned = {**F0, "gate": None, "point": None, "hit": None, "after_s": 1.5}
    verdict = audit_run(struck(tmp_path, planned).folder)
    assert verdict.verdict == "valid"
    assert str(verdict.faults[0].fault) == "f0 (sigkill of rank 1 at 1.5 s into training of attempt 0)"


def test_any_rank_may_be_struck_where_none_was_planned(tmp_path: Path) -> None:
    planned = fault(0, 0, "rank", None, "step.end")
    sim = Simulation(tmp_path / "run", Settings(faults=[planned]))
    sim.start()
    sim.train(5)
    struck_rank = {**planned, "rank": 1}
    sim.kill(struck_rank)
    sim.recover()
    sim.train(12)
    sim.finish()
    assert audit_run(sim.folder).verdict == "valid"


# -- the supervisor as a target

KILLED = fault(0, 0, "supervisor", None, "recover.formed")


def handed_over(tmp_path: Path, named: bool = True, planned: bool = True) -> Simulation:
    """The supervisor is struck, its processes die with it, another one resumes."""
    sim = Simulation(tmp_path / "run", Settings(faults=[KILLED] if planned else []))
    sim.start()
    sim.train(5)
    if planned:
        sim.receipt(KILLED, sim.supervisor)
    for proc in sim.procs:
        sim.exited(proc, 15)
    old = sim.supervisor
    sim.supervisor = sim._recorder("supervisor")
    previous = [{"file": old.name, **old.who, "head": old.head}]
    sim.say(sim.supervisor, "resumed", previous=previous if named else [])
    sim.say(sim.supervisor, "process", role="supervisor", rank=None, host="h", history=sim.supervisor.name,
            **sim.supervisor.who)  # fmt: skip
    sim.procs = []
    sim.recover()
    sim.train(12)
    sim.finish()
    return sim


def test_a_supervisor_that_another_one_found_gone(tmp_path: Path) -> None:
    verdict = audit_run(handed_over(tmp_path).folder)
    assert verdict.verdict == "valid"
    assert verdict.faults[0].observed is not None
    assert (verdict.faults[0].observed.how, verdict.faults[0].observed.pid) == ("resumed", 101)
    recovery = verdict.recoveries[0]
    assert recovery.detect_s is not None
    assert recovery.first_step_s is not None


def test_a_supervisor_that_nobody_missed(tmp_path: Path, judged: Judge) -> None:
    witness = judged(
        handed_over(tmp_path, named=False).folder, 10, "unknown", "nobody saw process 101 end as it says"
    )
    assert "died" not in witness  # what its end took along is accounted for by its receipt


def test_a_supervisor_that_ended_unplanned_but_was_resumed(tmp_path: Path, judged: Judge) -> None:
    judged(handed_over(tmp_path, planned=False).folder, 10, "unknown", "supervisor 101 (history/supervisor-h-101-1010."
           "jsonl) was found gone, and no receipt accounts for it")  # fmt: skip


def test_a_supervisor_that_ended_unplanned_and_unseen(tmp_path: Path, judged: Judge) -> None:
    sim = handed_over(tmp_path, named=False, planned=False)
    judged(sim.folder, 10, "unknown", "history/supervisor-h-101-1010.jsonl has no end")


def test_a_supervisor_whose_history_was_cut_after_another_one_had_seen_it(tmp_path: Path, judged: Judge) -> None:
    """Unplanned, so that no receipt has its head; the last line is nobody's entry."""
    sim = Simulation(tmp_path / "run")
    sim.start()
    sim.train(5)
    sim.say(sim.supervisor, "gave_up", reason="interrupted by SIGINT")
    for proc in sim.procs:
        sim.exited(proc, 15)
    old = sim.supervisor
    sim.supervisor = sim._recorder("supervisor")
    sim.say(sim.supervisor, "resumed", previous=[{"file": old.name, **old.who, "head": old.head}])
    sim.procs = []
    sim.recover()
    sim.train(12)
    sim.finish()
    old.path.write_bytes(b"".join(old.path.read_bytes().splitlines(keepends=True)[:-1]))
    who = f"the supervisor that resumed ({sim.supervisor.name}) has seen line {old.n + 1}"
    judged(sim.folder, 10, "unknown", f"history/{old.name} was cut: {who}, it ends at line {old.n}")


def test_a_receipt_beside_no_line_of_its_history(run: Simulation, judged: Judge) -> None:
    """The line before the first is none, though the last one could be found under its number."""
    path = run.folder / "history" / "receipts" / "f0.json"
    body = json.loads(path.read_bytes())["body"]
    struck = next(proc.history for proc in run.procs if proc.history.name == body["history"]["file"])
    path.write_bytes(seal({**body, "history": {"file": struck.name, "n": -1, "chain": struck.chain}})[0])
    words = f"history/{struck.name} is another one than the receipt of f0 has seen: line 0 differs"
    judged(run.folder, 10, "unknown", words)


def test_a_supervisor_that_was_named_without_its_head(tmp_path: Path, judged: Judge) -> None:
    sim = handed_over(tmp_path)
    events = bodies(sim.supervisor.path)
    del next(event for event in events if event["event"] == "resumed")["previous"][0]["head"]
    rechain(sim.supervisor.path, events)
    judged(sim.folder, 10, "valid")


def test_what_another_supervisor_gave_up_for_is_not_seen(tmp_path: Path, judged: Judge) -> None:
    sim = handed_over(tmp_path, named=False)
    events = bodies(sim.supervisor.path)
    events.insert(-1, {**events[-1], "event": "gave_up", "reason": "f0"})
    rechain(sim.supervisor.path, events)
    judged(sim.folder, 10, "unknown", "nobody saw process 101 end as it says")


@pytest.mark.parametrize(
    ("reason", "verdict"), [("injected fault f0: exception", "valid"), ("tired", "unknown")]
)
def test_a_supervisor_that_raised(tmp_path: Path, judged: Judge, reason: str, verdict: str) -> None:
    planned = {**KILLED, "kind": "exception"}
    sim = Simulation(tmp_path / "run", Settings(faults=[planned]))
    sim.start()
    sim.train(12)
    sim.receipt(planned, sim.supervisor)
    sim.say(sim.supervisor, "gave_up", reason=reason)
    sim.finish()
    judged(sim.folder, 10, verdict)


def test_a_run_that_gave_up_is_unknown(tmp_path: Path, judged: Judge) -> None:
    sim = Simulation(tmp_path / "run")
    sim.start()
    sim.train(8)
    sim.say(sim.supervisor, "gave_up", reason="no candidate is left")
    sim.finish(finished=False)
    judged(sim.folder, 10, "unknown", "the run did not reach step 12: no candidate is left")
    assert audit_run(sim.folder).verdict == "unknown"


def test_a_run_that_just_ends_is_unknown(tmp_path: Path, judged: Judge) -> None:
    sim = Simulation(tmp_path / "run")
    sim.start()
    sim.train(8)
    sim.finish(finished=False)
    judged(sim.folder, 10, "unknown", "its supervisor is gone, or still at work")


def test_an_unfinished_run_says_so_first_and_how_to_go_on(tmp_path: Path, judged: Judge) -> None:
    sim = Simulation(tmp_path / "a run")
    sim.start()
    sim.train(8)  # and no history is closed
    witness = judged(sim.folder, 10, "unknown")
    first, second, *_ = witness.split("; ", 2)
    assert first == "the run did not reach step 12: its supervisor is gone, or still at work"
    assert second == f"go on with: killpoint run --resume '{sim.folder}'"
    assert witness.count("has no end") == 1
    assert "more like it)" in witness


def test_a_point_of_the_users_own_that_is_not_passed_has_a_hint(tmp_path: Path, judged: Judge) -> None:
    never = fault(0, 0, "rank", 1, "user.predcted")
    sim = Simulation(tmp_path / "run", Settings(faults=[never]))
    sim.start()
    sim.train(12)
    sim.finish()
    judged(sim.folder, 10, "unknown", "did not fire: it has no receipt; `killpoint points --record EXPERIMENT` shows")


def test_all_faults_of_a_valid_run_are_seen(run: Any) -> None:
    assert [seen.fault.id for seen in audit_run(run.folder).faults] == [F0["id"], F1["id"]]


DAMAGE = {**F0, "kind": "damage", "role": "store", "rank": None, "point": None, "hit": None, "gate": None}


@pytest.mark.parametrize(
    ("after", "path", "gone", "how"),
    [
        (None, "shards/s00000002-a0000-r0000.safetensors", False, "damaged"),
        ("xxh3-128:0", "shards/s00000002-a0000-r0000.safetensors", False, None),
        (None, "shards/s00000002-a0000-r0000.safetensors", True, "removed since"),
        (None, None, True, None),
    ],
)
def test_damage_is_seen_in_the_file(
    tmp_path: Path, judged: Judge, after: str | None, path: str | None, gone: bool, how: str | None
) -> None:
    def edit(kind: str, thing: Any) -> None:
        if kind == "receipt":
            thing.update(path=path, after=after or thing["after"])

    file = "shards/s00000002-a0000-r0000.safetensors"
    sim = Simulation(tmp_path / "run", Settings(faults=[DAMAGE], keep=99), edit)
    sim.start()
    sim.train(12)
    sim.damage(file, DAMAGE)
    if gone:
        (sim.folder / "store" / file).unlink()
    sim.finish()
    seen = audit_run(sim.folder).faults[0].observed
    assert (None if seen is None else seen.how) == how
    judged(sim.folder, 10, "unknown" if how is None else "valid")


def test_two_receipts_of_one_fault(run: Simulation) -> None:
    """On disk a receipt bears its fault's name; evidence may come from elsewhere."""
    evidence = read_evidence(run.folder)
    twice = (*evidence.history.receipts, evidence.history.receipts[0])
    finding = judge(replace(evidence, history=replace(evidence.history, receipts=twice))).invariant(10)
    assert finding.verdict == "unknown"
    assert "fault f0 (sigkill of rank 1 at step.end hit 5 of attempt 0) has 2 receipts" in finding.witness


def test_a_history_that_its_supervisor_named_and_nobody_has(run: Simulation, judged: Judge) -> None:
    gone = run.procs[0].history
    (run.folder / "history" / gone.name).unlink()
    judged(run.folder, 10, "unknown", f"history/{gone.name} is missing: process {gone.pid} (rank) wrote it")


def test_histories_without_an_end_are_counted(tmp_path: Path, judged: Judge) -> None:
    """Of a supervisor, a committer and two ranks, and of the three launchers."""
    sim = Simulation(tmp_path / "run")
    sim.start()
    sim.train(12)
    judged(sim.folder, 10, "unknown", f"history/{sim.of('committer').history.name} has no end", "(and 6 more like it)")
    one = Simulation(tmp_path / "one", edit=on_event("closed", lambda thing: thing.update(drop="heads" in thing)))
    one.start()
    one.train(12)
    one.finish()
    witness = judged(one.folder, 10, "unknown", f"history/{one.supervisor.name} has no end, and nothing says")
    assert "more like it" not in witness


def test_a_process_that_only_trained_and_was_never_named(run: Simulation, judged: Judge) -> None:
    step = next(body for body in bodies(run.procs[0].history.path) if body["event"] == "step")
    stranger = Recorder(run.folder / "history", "worker", 900, 1, "run-1", run.tick())
    judged(run.folder, 10, "valid")  # a standby that nobody needed
    fields = {key: value for key, value in step.items() if key not in ("event", "attempt", "t_ns", "clock")}
    stranger.record("step", 0, run.tick(), **fields)
    judged(run.folder, 10, "unknown", f"history/{stranger.name} has no end, and nothing says that process 900")
    other = Recorder(run.folder / "history", "worker", 901, 1, "run-1", run.tick())
    other.record("step", 0, run.tick(), **fields)
    judged(run.folder, 10, "unknown", "was ended (and 1 more like it)")


def test_the_last_reason_to_give_up_is_told(tmp_path: Path, judged: Judge) -> None:
    sim = Simulation(tmp_path / "run")
    sim.start()
    sim.train(5)
    sim.say(sim.supervisor, "gave_up", reason="interrupted by SIGINT")
    sim.say(sim.supervisor, "gave_up", reason="3 attempts failed")
    sim.close()
    assert "SIGINT" not in judged(sim.folder, 10, "unknown", "the run did not reach step 12: 3 attempts failed")


# -- the check by itself, on one run that is read once and altered a piece at a time


@pytest.fixture(scope="module")
def whole(tmp_path_factory: pytest.TempPathFactory) -> Evidence:
    """A valid run with two kills."""
    return read_evidence(two_kills(tmp_path_factory.mktemp("vacuous") / "run").folder)


def found(evidence: Evidence) -> tuple[str, str]:
    finding = vacuous.check(evidence)
    return finding.verdict.value, finding.witness


def with_history(evidence: Evidence, **changes: Any) -> Evidence:
    return replace(evidence, history=replace(evidence.history, **changes))


def with_events(evidence: Evidence, kind: type, *events: Event[Any]) -> Evidence:
    """These in place of those of that kind that there are."""
    return with_history(evidence, by_kind={**evidence.history.by_kind, kind: list(events)})


def with_files(evidence: Evidence, *files: HistoryFile) -> Evidence:
    return with_history(evidence, files={**evidence.history.files, **{file.name: file for file in files}})


def begun_with(evidence: Evidence, **changes: Any) -> Evidence:
    assert evidence.begun is not None
    return replace(evidence, begun=replace(evidence.begun, **changes))


def test_the_run_that_is_altered_here_is_valid(whole: Evidence) -> None:
    assert found(whole) == ("valid", "")


def test_a_run_without_a_planned_fault_and_without_any_is_not_judged(tmp_path: Path) -> None:
    sim = Simulation(tmp_path / "run", Settings(steps=2))
    sim.start()
    sim.train(2)
    sim.finish()
    assert found(read_evidence(sim.folder)) == ("not_judged", "no fault was planned")


def test_a_run_without_any_history(whole: Evidence) -> None:
    nothing = begun_with(with_history(whole, files={}, by_kind={}, receipts=()), faults=())
    assert list(vacuous.evidence_gaps(nothing)) == ["there is no history"]
    assert found(nothing)[1].startswith("there is no history; ")


def test_whatever_is_wrong_with_the_history_is_told(whole: Evidence) -> None:
    problems = (Problem("history/receipts/f0.json", "is no sealed file"), Problem("history/x", "is none"))
    words = "history/receipts/f0.json is no sealed file; history/x is none"
    assert found(with_history(whole, problems=problems)) == ("unknown", words)


def test_a_history_that_is_cut_or_of_another_run(whole: Evidence) -> None:
    first = next(iter(whole.history.files.values()))
    assert first.opened is not None
    cut = replace(first, problem="does not continue the chain at line 3")
    words = f"history/{first.name} does not continue the chain at line 3"
    assert list(vacuous.evidence_gaps(with_files(whole, cut))) == [words]
    other = replace(first, opened=replace(first.opened, run="run-9"))
    words = f"history/{first.name} is of run run-9, not of run-1"
    assert list(vacuous.evidence_gaps(with_files(whole, other))) == [words]
    unopened = replace(first, opened=None, closed=True)
    gaps = list(vacuous.evidence_gaps(with_files(whole, unopened)))
    assert not [gap for gap in gaps if "of run" in gap]


def test_receipts_of_what_was_not_planned_are_told_where_the_plan_is_known(whole: Evidence) -> None:
    fewer = begun_with(whole, faults=whole.faults[:1])
    assert found(fewer) == ("unknown", "there is a receipt of f1, which was not planned")
    unknown = found(replace(whole, begun=None))
    assert unknown[0] == "unknown"
    assert "no history says what the run was" in unknown[1]
    assert "was not planned" not in unknown[1]


def test_what_contradicts_itself_is_invalid(whole: Evidence) -> None:
    assert whole.plan is not None
    altered = replace(whole, plan=replace(whole.plan, seed=8))
    assert found(altered) == ("invalid", "the run has seed 7, its plan 8")


def test_a_death_that_nothing_explains(whole: Evidence) -> None:
    bare = begun_with(with_history(whole, receipts=()), faults=())
    verdict, witness = found(bare)
    assert verdict == "unknown"
    for role in ("rank 1", "committer"):
        assert re.search(rf"process \d+ \({role}\) died by signal 9, and no receipt or recorded kill", witness)
    assert "attempt 0 ended because rank 1 (process " in witness
    assert "attempt 1 ended because committer (process " in witness


def test_a_notice_that_nobody_gave(whole: Evidence) -> None:
    file = next(event.file for event in whole.history.by_kind[StepDone])
    notice = Event(file, 1, 0, 0, 0, Noticed(0, 3, True))
    words = "rank 0 of attempt 0 was given notice before the end of step 3, and no receipt accounts for it"
    assert found(with_events(whole, Noticed, notice)) == ("unknown", words)


def test_a_fault_without_a_receipt_or_with_several(whole: Evidence) -> None:
    first, second = whole.history.receipts
    which = "fault f1 (sigkill of committer at publish.before hit 2 of attempt 1)"
    for receipts, words in (
        ((first,), f"{which} did not fire: it has no receipt"),
        ((first, second, second), "of attempt 1) has 2 receipts: it was to strike once"),
        ((first, second, second, second), "of attempt 1) has 3 receipts: it was to strike once"),
    ):
        verdict, witness = found(with_history(whole, receipts=receipts))
        assert verdict == "unknown"
        assert words in witness
        assert "`killpoint points" not in witness


@pytest.mark.parametrize(("point", "hint"), [("user.loss", True), ("step.user.end", False), (None, False)])
def test_the_points_of_the_user_are_told_how_to_be_listed(whole: Evidence, point: str | None, hint: bool) -> None:
    never = replace(whole.faults[0], id="f9", point=point, after_s=None if point else 1.5)
    witness = found(begun_with(whole, faults=(*whole.faults, never)))[1]
    assert "fault f9 (" in witness
    assert "did not fire: it has no receipt" in witness
    assert ("; `killpoint points --record EXPERIMENT` shows which points a run passes" in witness) == hint


def test_the_head_that_somebody_saw_is_a_line_of_the_history(whole: Evidence) -> None:
    """The last line is one, what lies behind it is not."""
    receipt = whole.history.receipts[0]
    assert receipt.history is not None
    name = receipt.history.file
    chains = whole.history.files[name].chains
    last = len(chains) - 1

    def seen(n: int, chain: str, file: str = name) -> tuple[str, str]:
        other = replace(receipt, history=Head(file, n, chain))
        return found(with_history(whole, receipts=(other, *whole.history.receipts[1:])))

    assert seen(last, chains[last]) == ("valid", "")
    assert seen(0, chains[0]) == ("valid", "")
    assert seen(last + 1, chains[last])[1] == (
        f"history/{name} was cut: the receipt of f0 has seen line {last + 2}, it ends at line {last + 1}"
    )
    assert seen(last, chains[0])[1] == (
        f"history/{name} is another one than the receipt of f0 has seen: line {last + 1} differs"
    )
    assert seen(-1, chains[last])[1] == f"history/{name} is another one than the receipt of f0 has seen: line 0 differs"
    assert f"history/{name}x is missing: the receipt of f0 names it" in seen(0, chains[0], f"{name}x")[1]


def test_each_place_that_holds_a_head_is_named(whole: Evidence) -> None:
    closed = next(event for event in whole.history.by_kind[Closed] if event.what.heads)
    lost = Head("worker-gone.jsonl", 0, "0" * 64)
    end = replace(closed, what=Closed((*closed.what.heads, lost)))
    others = [event for event in whole.history.by_kind[Closed] if event is not closed]
    assert found(with_events(whole, Closed, *others, end))[1] == (
        f"history/worker-gone.jsonl is missing: the end of {closed.file} names it"
    )
    resumed = Event(closed.file, 0, 0, 0, None, Resumed((Previous("a", 1, 1), Previous("b", 1, 1, lost))))
    assert (f"history/worker-gone.jsonl is missing: the supervisor that resumed ({closed.file}) names it"
            in found(with_events(whole, Resumed, resumed))[1])  # fmt: skip
    name, seen = next(iter(whole.store.manifests.items()))
    assert seen.manifest is not None
    ranks = (replace(seen.manifest.ranks[0], history=lost), *seen.manifest.ranks[1:])
    manifests = {**whole.store.manifests, name: replace(seen, manifest=replace(seen.manifest, ranks=ranks))}
    assert found(replace(whole, store=replace(whole.store, manifests=manifests)))[1] == (
        f"history/worker-gone.jsonl is missing: the manifest of {name} names it"
    )


def test_a_run_that_did_not_finish_says_why_and_how_to_go_on(whole: Evidence) -> None:
    open_ = with_events(replace(whole, folder="a run"), Finished)
    hint = "; go on with: killpoint run --resume 'a run'"
    at = "the run did not reach step 12: "
    assert found(open_) == ("unknown", f"{at}its supervisor is gone, or still at work{hint}")
    for reasons, words in (
        (["interrupted by SIGINT"], f"interrupted by SIGINT{hint}"),
        (["3 attempts failed"], "3 attempts failed"),
        (["interrupted by SIGINT", "3 attempts failed"], "3 attempts failed"),
        (["3 attempts failed", "interrupted by SIGINT"], f"interrupted by SIGINT{hint}"),
    ):
        gave_up = [Event("supervisor.jsonl", n, 0, 0, None, GaveUp(reason)) for n, reason in enumerate(reasons)]
        assert found(with_events(open_, GaveUp, *gave_up)) == ("unknown", f"{at}{words}")
    assert "did not reach" not in found(with_events(replace(whole, begun=None), Finished))[1]


def without_end(evidence: Evidence, closed: str, kept: bool = False) -> list[str]:
    """What is told of a file that is not closed. kept: the kill of whatever was killed is on record."""
    kills = evidence.history.by_kind[Killing] if kept else []
    open_ = with_events(with_files(evidence, replace(evidence.history.files[closed], closed=False)), Killing, *kills)
    return [gap for gap in vacuous.evidence_gaps(open_) if closed in gap]


def test_a_supervisor_ends_its_history(whole: Evidence) -> None:
    (name,) = (file.name for file in whole.history.files.values() if file.opened and file.opened.role == "supervisor")
    pid = whole.history.files[name].opened.pid  # type: ignore[union-attr]
    words = f"history/{name} has no end, and nothing says that process {pid} was ended"
    assert without_end(whole, name) == [words]
    idle = replace(whole.history.files[name], closed=False, events=())
    assert words in list(vacuous.evidence_gaps(with_files(whole, idle)))


def test_a_process_that_is_known_to_have_ended_need_not_say_so(whole: Evidence) -> None:
    """By its launcher, by whoever confirmed it, or by who killed it; where nothing does, it took part and is told."""
    exits = whole.history.by_kind[Exited]
    process = exits[-1].what
    who = process.pid, process.start_ticks
    (name,) = (
        file.name
        for file in whole.history.files.values()
        if file.opened and (file.opened.pid, file.opened.start_ticks) == who
    )
    words = [f"history/{name} has no end, and nothing says that process {process.pid} was ended"]
    assert without_end(whole, name) == []
    gone = with_events(whole, Exited, *(event for event in exits if event.what != process))
    assert without_end(gone, name) == words
    assert without_end(gone, name, kept=True) == []
    confirmed = ExitConfirmed(process.pid, process.start_ticks, 9, None)
    assert without_end(with_events(gone, ExitConfirmed, replace(exits[0], what=confirmed)), name) == []


def test_only_a_process_that_took_part_is_missed(whole: Evidence) -> None:
    """It was named, or it led, or it trained in an attempt."""
    steps = next(file for file in whole.history.files.values() if len(file.steps))
    opened = Opened("run-1", "worker", 900, 1, "h", "b")
    idle = HistoryFile("worker-idle.jsonl", opened, (), (), False, False)
    words = ["history/worker-idle.jsonl has no end, and nothing says that process 900 was ended"]
    told = [event for event in steps.events if isinstance(event.what, Restored)]
    none = [replace(event, attempt=None) for event in told]
    named = ProcessNamed("rank", 1, 7, 7, "h", "worker-idle.jsonl")
    for file, others, gaps in (
        (idle, (), []),
        (replace(idle, events=tuple(none)), (), []),
        (replace(idle, events=tuple(told)), (), words),
        (replace(idle, events=(*none, *told[:1])), (), words),
        (replace(idle, steps=steps.steps), (), words),
        (replace(idle, steps=Steps.of([replace(event, attempt=None) for event in steps.steps])), (), []),
        (idle, (Event("x", 0, 0, 0, 0, named),), words),
        (replace(idle, opened=replace(opened, role="supervisor")), (), words),
        (replace(idle, closed=True, events=tuple(told)), (), []),
    ):
        altered = with_events(whole, ProcessNamed, *whole.history.by_kind[ProcessNamed], *others)
        assert [gap for gap in vacuous.evidence_gaps(with_files(altered, file)) if "worker-idle" in gap] == gaps


def test_a_launcher_whose_process_nobody_ended_was_cut_off(whole: Evidence) -> None:
    last = whole.history.by_kind[Exited][-1]
    words = [f"history/{last.file} has no end: the launcher of process {last.what.pid} was cut off"]
    assert without_end(whole, last.file) == words
    assert without_end(whole, last.file, kept=True) == []
    launcher = whole.history.files[last.file]
    nothing = replace(launcher, events=())
    assert without_end(with_files(whole, nothing), last.file) == []
    strange = replace(launcher, events=(Event(last.file, 1, 0, 0, None, Spawned(900, 1)),))
    assert without_end(with_files(whole, strange), last.file) == []


def test_of_several_histories_without_an_end_the_first_is_told_and_the_others_counted(whole: Evidence) -> None:
    exited = whole.history.by_kind[Exited]
    files = [replace(whole.history.files[event.file], closed=False) for event in exited]
    for count, more in ((1, ""), (2, " (and 1 more like it)")):  # the others were struck, or killed behind a death
        killed = [e for e in whole.history.by_kind[Killing] if e.what.pid not in {x.what.pid for x in exited[-count:]}]
        altered = with_files(with_events(whole, Killing, *killed), *files[-count:])
        (gap,) = (gap for gap in vacuous.evidence_gaps(altered) if "cut off" in gap)
        assert gap.endswith(f"was cut off{more}")


def test_entries_and_processes_that_left_no_record_are_told(whole: Evidence) -> None:
    fenced = [event for event in whole.history.by_kind[Fenced] if event.attempt != 1]
    entry = next(event.what.seq for event in whole.history.by_kind[Fenced] if event.attempt == 1)
    words = f"no supervisor recorded the fence of attempt 1, entry {entry}"
    assert found(with_events(whole, Fenced, *fenced)) == ("unknown", words)
    name = next(iter(whole.history.by_kind[Spawned])).file
    slow = replace(whole.history.files[name], advances=False)
    assert found(with_files(whole, slow)) == ("unknown", f"history/{name} has a clock that does not advance")
