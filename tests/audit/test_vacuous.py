"""Invariant 10, the faults: planned, receipted, seen; and no death that nobody accounts for."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from audit_files import Recorder, bodies, rechain, seal
from judging import Judge
from simulated_run import F0, F1, Edit, Settings, Simulation, fault, two_kills

from chaos.audit import audit_run
from chaos.audit.read_run import read_evidence
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
