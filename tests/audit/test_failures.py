"""Invariant 10, failures that nobody planned: whatever ended an attempt or a supervisor needs a receipt."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from judging import Judge
from simulated_run import F0, Proc, Settings, Simulation, fault

from chaos.audit import audit_run

PLAIN = {**F0, "gate": None}
LATER = fault(1, 1, "rank", 0, "step.end")


def begun(tmp_path: Path, *faults: dict[str, Any], **settings: Any) -> Simulation:
    sim = Simulation(tmp_path / "run", Settings(faults=list(faults), **settings))
    sim.start()
    sim.train(5)
    return sim


def lost(sim: Simulation, proc: Proc, how: str, *, detail: str = "", exit_code: int | None = None) -> None:
    """The supervisor notices and ends the process; with an exit code it had ended by itself."""
    if exit_code is not None:
        sim.exited(proc, None, exit_code)
    sim.say(sim.supervisor, "detected", sim.attempt, role=proc.role, rank=proc.rank, how=how, detail=detail,
            **proc.history.who)  # fmt: skip
    sim.end(proc)


def went_on(sim: Simulation) -> Simulation:
    sim.recover()
    sim.train(12)
    sim.finish()
    return sim


@pytest.mark.parametrize(
    ("how", "detail", "exit_code"),
    [
        ("actor_died", "", 0),
        ("raised", "OSError: disk hiccup", None),
        ("stalled", "passed no point since step.begin", None),
        ("stopped", "", None),
    ],
)
def test_a_failure_that_nobody_planned(
    tmp_path: Path, judged: Judge, how: str, detail: str, exit_code: int | None
) -> None:
    sim = begun(tmp_path)
    lost(sim, sim.of("rank", 1), how, detail=detail, exit_code=exit_code)
    words = f"attempt 0 ended because rank 1 (process 105) was lost: {how}{f' ({detail})' if detail else ''}, and no"
    judged(went_on(sim).folder, 10, "unknown", words)
    assert audit_run(sim.folder).verdict == "unknown"


def test_a_failure_beside_a_planned_one_of_another_attempt(tmp_path: Path, judged: Judge) -> None:
    sim = begun(tmp_path, PLAIN)
    sim.kill(PLAIN)
    sim.recover()
    sim.train(7)
    lost(sim, sim.of("rank", 0), "actor_died", exit_code=0)
    judged(went_on(sim).folder, 10, "unknown", "attempt 1 ended because rank 0")


@pytest.mark.parametrize("first", [True, False])
@pytest.mark.parametrize("how", ["raised", "missed_deadline", "actor_died"])
def test_a_peer_that_fails_of_the_same_death_is_no_second_one(tmp_path: Path, how: str, first: bool) -> None:
    sim = begun(tmp_path, PLAIN)
    if first:
        lost(sim, sim.of("rank", 0), how, detail="RuntimeError: connection closed by peer")
    sim.kill(PLAIN)
    if not first:
        lost(sim, sim.of("rank", 0), how)
    assert audit_run(went_on(sim).folder).verdict == "valid"


def test_a_process_that_never_said_who_it_is(tmp_path: Path, judged: Judge) -> None:
    sim = begun(tmp_path, PLAIN)
    sim.kill(PLAIN)
    sim.recover()
    who = {"pid": None, "start_ticks": None}
    sim.say(sim.supervisor, "detected", 1, role="rank", rank=1, how="actor_died", detail="", **who)
    judged(went_on(sim).folder, 10, "unknown", "attempt 1 ended because rank 1 (process None)")


def test_an_attempt_that_ended_for_no_reason_that_is_told(tmp_path: Path, judged: Judge) -> None:
    judged(went_on(begun(tmp_path)).folder, 10, "unknown", "attempt 0 ended, and neither a detection nor a receipt")


def test_a_standby_that_was_struck_before_it_took_its_place(tmp_path: Path) -> None:
    """Attempt 1 puts a standby in that has just been struck: it never comes up, and nobody is detected."""
    standby = fault(1, 0, "standby", None, "standby.warm")
    sim = begun(tmp_path, PLAIN, standby)
    waiting = sim._process("standby", None)
    sim.kill(PLAIN)
    sim.fence()
    sim.receipt({**standby, "attempt": -1}, waiting.history)
    sim.exited(waiting, 9)
    assert audit_run(went_on(sim).folder).verdict == "valid"


@pytest.mark.parametrize(("how", "verdict"), [("raised", "valid"), ("stalled", "valid"), ("actor_died", "unknown")])
def test_a_data_task_may_take_its_rank_along(tmp_path: Path, how: str, verdict: str) -> None:
    planned = fault(0, 0, "data", 1, "data.read", kind="exception")
    sim = begun(tmp_path, planned)
    sim.receipt(planned, None)
    lost(sim, sim.of("rank", 1), how, exit_code=0 if how == "actor_died" else None)
    assert audit_run(went_on(sim).folder).verdict == verdict


def test_a_strike_that_comes_after_the_next_fence(tmp_path: Path) -> None:
    """The committer is still at work for attempt 0 when it is struck, and attempt 1 finds it gone."""
    late = fault(1, 0, "committer", None, "publish.after", hit=2)
    sim = begun(tmp_path, PLAIN, late)
    sim.kill(PLAIN)
    sim.recover()
    sim.kill(late)
    assert audit_run(went_on(sim).folder).verdict == "valid"


@pytest.mark.parametrize("signal", [11, 6, 7])
@pytest.mark.parametrize("role", ["rank", "committer"])
def test_a_crash_is_not_explained_by_the_kill_that_follows_it(
    tmp_path: Path, judged: Judge, role: str, signal: int
) -> None:
    """The process is still dying when the supervisor looks, so a kill is recorded."""
    sim = begun(tmp_path, PLAIN)
    sim.kill(PLAIN)
    proc = sim.of("rank", 0) if role == "rank" else sim.of("committer")
    sim.say(sim.supervisor, "detected", 0, role=role, rank=proc.rank, how="actor_died", detail="", **proc.history.who)
    sim.say(sim.supervisor, "killing", 0, signal=9, why="lost to the attempt", **proc.history.who)
    sim.exited(proc, signal)
    judged(went_on(sim).folder, 10, "unknown", f"died by signal {signal}")


def standby_ends(sim: Simulation, signal: int | None, code: int | None = None) -> None:
    """A standby that nobody has named."""
    launcher, history = sim._recorder("launcher"), sim._recorder("worker")
    sim.say(launcher, "spawned", None, **history.who)
    sim.exited(Proc("standby", None, history, launcher), signal, code)


@pytest.mark.parametrize(
    ("signal", "code", "verdict"), [(11, None, "unknown"), (6, None, "unknown"), (9, None, "valid"), (None, 1, "valid")]
)
def test_an_unnamed_standby_that_crashed(tmp_path: Path, signal: int | None, code: int | None, verdict: str) -> None:
    """Ray's own ways to end a process that nobody has named, SIGKILL and an exit code, are no crash."""
    sim = begun(tmp_path)
    standby_ends(sim, signal, code)
    sim.train(12)
    sim.finish()
    assert audit_run(sim.folder).verdict == verdict
    if verdict == "unknown":
        assert f"died by signal {signal}, and no receipt" in audit_run(sim.folder).invariant(10).witness


def test_an_unnamed_standby_that_crashed_when_the_run_was_over(tmp_path: Path) -> None:
    sim = begun(tmp_path)
    sim.train(12)
    sim.say(sim.supervisor, "finished", 0, step=12)
    standby_ends(sim, 6)
    sim.finish(finished=False)
    assert audit_run(sim.folder).verdict == "valid"


# -- supervisors

KILLED = fault(0, 0, "supervisor", None, "supervisor.training")


def resumed(sim: Simulation, *previous: Any) -> None:
    """Another supervisor takes the run up."""
    sim.supervisor = sim._recorder("supervisor")
    named = [{"file": each.name, **each.who, "head": each.head} for each in previous]
    sim.say(sim.supervisor, "resumed", previous=named)
    sim.say(sim.supervisor, "process", role="supervisor", rank=None, host="h", history=sim.supervisor.name,
            **sim.supervisor.who)  # fmt: skip


def ended_by_successor(sim: Simulation) -> None:
    for proc in sim.procs:
        if proc.alive:
            sim.say(sim.supervisor, "killing", None, signal=9, why="left by an earlier supervisor", **proc.history.who)
            sim.exited(proc, 9)


def test_an_interrupted_run_that_was_resumed(tmp_path: Path) -> None:
    sim = begun(tmp_path)
    first = sim.supervisor
    sim.say(first, "gave_up", reason="interrupted by SIGINT")
    sim.close()
    resumed(sim)
    verdict = audit_run(went_on(sim).folder)
    assert verdict.verdict == "valid", verdict.invariant(10)


def test_a_rank_that_was_struck_while_nobody_led(tmp_path: Path) -> None:
    """Rank and supervisor are struck at once: the next supervisor finds neither, and the launcher saw the rank end."""
    rank = fault(1, 0, "rank", 1, "step.end")
    sim = begun(tmp_path, KILLED, rank)
    proc = sim.of("rank", 1)
    sim.receipt(KILLED, sim.supervisor)
    sim.receipt(rank, proc.history)
    sim.exited(proc, 9)
    old = sim.supervisor
    resumed(sim, old)
    ended_by_successor(sim)
    verdict = audit_run(went_on(sim).folder)
    assert verdict.verdict == "valid", verdict.invariant(10)
    assert [seen.observed.how for seen in verdict.faults if seen.observed] == ["resumed", "exited"]


def test_a_failure_that_a_struck_supervisor_had_seen(tmp_path: Path, judged: Judge) -> None:
    sim = begun(tmp_path, KILLED)
    lost(sim, sim.of("rank", 1), "actor_died", exit_code=0)
    sim.receipt(KILLED, sim.supervisor)
    old = sim.supervisor
    resumed(sim, old)
    ended_by_successor(sim)
    judged(went_on(sim).folder, 10, "unknown", "attempt 0 ended because rank 1")


def test_a_supervisor_that_was_fenced_off_while_it_lived(tmp_path: Path) -> None:
    """Two resume at once. The later fence wins; its supervisor ends the other's processes, which the other sees."""
    sim = begun(tmp_path, KILLED)
    first = sim.supervisor
    sim.receipt(KILLED, first)
    resumed(sim, first)
    second = sim.supervisor
    ended_by_successor(sim)
    sim.recover()
    resumed(sim, first)
    ended_by_successor(sim)
    gone = next(proc for proc in sim.procs if proc.role == "rank" and proc.history.pid > second.pid)
    sim.say(second, "detected", 1, role="rank", rank=0, how="actor_died", detail="", **gone.history.who)
    sim.say(second, "closed")
    verdict = audit_run(went_on(sim).folder)
    assert verdict.verdict == "valid", verdict.invariant(10)


def test_a_recovery_that_nobody_planned_counts_as_one(tmp_path: Path) -> None:
    sim = begun(tmp_path)
    lost(sim, sim.of("rank", 1), "actor_died", exit_code=0)
    assert not any("no recovery was seen" in line for line in audit_run(went_on(sim).folder).unseen)


def test_a_fault_that_restarts_nothing_is_no_recovery(tmp_path: Path) -> None:
    planned = fault(0, 0, "data", 0, "data.read")
    sim = begun(tmp_path, planned)
    sim.receipt(planned, None)
    sim.train(12)
    sim.finish()
    assert "nothing was restarted: no recovery was seen" in audit_run(sim.folder).unseen


def test_a_supervisor_among_several_whose_place_was_taken(tmp_path: Path) -> None:
    """The third supervisor names both before it."""
    second = fault(1, 1, "supervisor", None, "supervisor.training")
    sim = begun(tmp_path, KILLED, second)
    first = sim.supervisor
    sim.receipt(KILLED, first)
    resumed(sim, first)
    ended_by_successor(sim)
    sim.recover()
    sim.receipt(second, sim.supervisor)
    resumed(sim, first, sim.supervisor)
    ended_by_successor(sim)
    verdict = audit_run(went_on(sim).folder)
    assert verdict.verdict == "valid", verdict.invariant(10)
    assert [seen.observed.how for seen in verdict.faults if seen.observed] == ["resumed", "resumed"]
