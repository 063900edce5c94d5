"""Invariant 10, failures that nobody planned: whatever ended an attempt or a supervisor needs a receipt."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from evidence_by_hand import evidence, fence, receipt, recorded
from judging import Judge
from simulated_run import F0, Proc, Settings, Simulation, fault

from chaos.audit import audit_run
from chaos.audit.events import Detected, Exited, Finished, GaveUp, Joined, Previous, ProcessNamed, Resumed, Training
from chaos.audit.evidence import Entry, HistoryFile
from chaos.audit.facts import Receipt
from chaos.audit.failures import unaccounted

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


# -- of a few lines: what explains an attempt's end


def was_lost(pid: int | None, how: str = "actor_died", role: str = "rank", rank: int | None = 1,
             detail: str = "") -> Detected:  # fmt: skip
    return Detected(role, rank, pid, None if pid is None else 10 * pid, how, detail)


def told(*files: HistoryFile, entries: tuple[Entry, ...] = (), receipts: tuple[Receipt, ...] = ()) -> list[str]:
    return list(unaccounted(evidence(entries, files, receipts)))


SIGKILL = receipt("sigkill", "rank", 1, 0, 5)
RAISED = receipt("exception", "rank", 1, 0, 5)
DATA = receipt("exception", "data", 1, 0, 5)
OF_DATA = receipt("sigkill", "data", 1, 0, 5)
STANDBY = receipt("sigkill", "standby", None, 7, 5)


@pytest.mark.parametrize(
    ("struck", "what", "explained"),
    [
        (SIGKILL, was_lost(5), True),
        (SIGKILL, was_lost(6), False),
        (SIGKILL, Detected("rank", 1, 5, 51, "actor_died", ""), False),
        (SIGKILL, was_lost(6, "raised"), False),
        (receipt("sigkill", "rank", 1, 4, 5), was_lost(5), True),
        (receipt("slow", "rank", 1, 0, 5), was_lost(5), False),
        (receipt("damage", "rank", 1, 0, 5), was_lost(None), False),
        (RAISED, was_lost(6, "raised"), True),
        (RAISED, was_lost(6, "raised", "committer", None), True),
        (RAISED, was_lost(6), False),
        (RAISED, was_lost(5), True),
        (receipt("exception", "rank", 1, 1, 5), was_lost(6, "raised"), False),
        (receipt("exception", "rank", 1, 1, 5), was_lost(5, "raised"), True),
        (DATA, was_lost(6, "raised"), True),
        (DATA, was_lost(6, "stalled"), True),
        (OF_DATA, was_lost(6, "raised"), True),
        (OF_DATA, was_lost(6), False),
        (OF_DATA, was_lost(5), False),
        (receipt("sigkill", "data", 1, 1, 5), was_lost(6, "raised"), False),
        (SIGKILL, was_lost(None), True),
        (SIGKILL, was_lost(None, rank=0), False),
        (SIGKILL, was_lost(None, role="committer"), False),
        (receipt("sigkill", "rank", 1, 1, 5), was_lost(None), False),
        (receipt("sigkill", "committer", None, 0, 5), was_lost(None, role="committer", rank=None), True),
        (STANDBY, was_lost(None), True),
        (STANDBY, was_lost(6), False),
    ],
)
def test_which_receipt_explains_which_detection(struck: Receipt, what: Detected, explained: bool) -> None:
    found = told(recorded("supervisor", 1, (0, what)), receipts=(struck,))
    assert len(found) == (not explained)
    assert all(text.startswith("attempt 0 ended because") for text in found)


def test_one_explained_detection_is_enough_and_otherwise_the_first_is_told() -> None:
    first = was_lost(8, "raised", detail="OSError: disk")
    several = recorded("supervisor", 1, (0, first), (0, was_lost(5, "stopped", "committer", None)), (0, was_lost(9)))
    assert told(several, receipts=(SIGKILL,)) == []
    words = (
        "attempt 0 ended because rank 1 (process 8) was lost: raised (OSError: disk), and no receipt accounts for it"
    )
    assert told(several) == [words]


def test_a_process_of_no_rank_is_named_by_its_role() -> None:
    found = told(recorded("supervisor", 1, (3, was_lost(5, "stopped", "committer", None))))
    assert found == ["attempt 3 ended because committer (process 5) was lost: stopped, and no receipt accounts for it"]


def test_attempts_are_judged_each_by_itself_and_in_order() -> None:
    file = recorded("supervisor", 1, (2, was_lost(9)), (0, was_lost(5)), (1, was_lost(7)))
    found = told(file, receipts=(SIGKILL,))
    assert [text[:9] for text in found] == ["attempt 1", "attempt 2"]


def test_a_detection_in_no_attempt_is_none_of_attempt_0() -> None:
    file = recorded("supervisor", 1, (None, was_lost(9)), (0, was_lost(5)))
    assert [text[:10] for text in told(file)] == ["attempt -1", "attempt 0 "]
    assert [text[:10] for text in told(file, receipts=(SIGKILL,))] == ["attempt -1"]


# -- of a few lines: attempts that ended without a detection


def begun_by(*supervisors: int) -> tuple[Entry, ...]:
    """Attempts 0, 1, …, each begun by the supervisor of this pid."""
    return tuple(fence(attempt, attempt, pid) for attempt, pid in enumerate(supervisors))


@pytest.mark.parametrize(
    ("struck", "explained"),
    [
        (SIGKILL, True),
        (receipt("sigkill", "rank", 1, 1, 5), False),
        (receipt("slow", "rank", 1, 0, 5), False),
        (receipt("slow", "standby", None, 0, 5), False),
        (STANDBY, True),
    ],
)
def test_which_receipt_explains_an_attempt_in_which_nobody_was_lost(struck: Receipt, explained: bool) -> None:
    words = "attempt 0 ended, and neither a detection nor a receipt says why"
    assert told(entries=begun_by(1, 1), receipts=(struck,)) == ([] if explained else [words])


def test_every_attempt_but_the_last_needs_a_reason() -> None:
    found = told(entries=begun_by(1, 1, 1, 1), receipts=(receipt("sigkill", "rank", 0, 1, 5),))
    assert [text[:15] for text in found] == ["attempt 0 ended", "attempt 2 ended"]
    assert told(entries=begun_by(1)) == []


def test_an_attempt_that_another_supervisor_followed_needs_none() -> None:
    assert [text[:9] for text in told(entries=begun_by(1, 2, 2))] == ["attempt 1"]


def test_an_attempt_with_a_detection_is_told_once() -> None:
    found = told(recorded("supervisor", 1, (0, was_lost(5))), entries=begun_by(1, 1))
    assert [text[:23] for text in found] == ["attempt 0 ended because"]


# -- of a few lines: supervisors that others followed


def resumes(*pids: int) -> Resumed:
    return Resumed(tuple(Previous(f"supervisor-h-{pid}-{10 * pid}.jsonl", pid, 10 * pid) for pid in pids))


LOSS = (0, was_lost(9))


def test_what_a_fenced_off_supervisor_saw_needs_no_receipt_if_it_ended_in_order() -> None:
    other = recorded("supervisor", 2)
    assert told(recorded("supervisor", 1, LOSS, closed=True), other, entries=begun_by(1, 2)) == []
    assert len(told(recorded("supervisor", 1, LOSS), other, entries=begun_by(1, 2))) == 1
    assert len(told(recorded("supervisor", 1, LOSS, closed=True), other, entries=begun_by(1, 1))) == 1
    assert len(told(recorded("supervisor", 1, LOSS, closed=True), other, entries=begun_by(1))) == 1


def test_a_supervisor_that_another_found_gone_was_not_fenced_off() -> None:
    other = recorded("supervisor", 2, (None, resumes(1)))
    found = told(recorded("supervisor", 1, LOSS, closed=True), other, entries=begun_by(1, 2))
    assert [text[:15] for text in found] == ["attempt 0 ended"]


def test_only_the_supervisor_itself_ends_its_history_in_order() -> None:
    """Neither the order in another supervisor's history nor in that of a worker of the same number says so."""
    ended = recorded("supervisor", 3, closed=True)
    worker = recorded("worker", 1, closed=True)
    unnamed = recorded("supervisor", 4, opened=False, closed=True)
    files = (recorded("supervisor", 1, LOSS), worker, ended, unnamed)
    assert len(told(*files, entries=begun_by(1, 2))) == 1


def test_a_supervisor_that_was_found_gone_needs_a_receipt_or_an_end_in_order() -> None:
    words = "supervisor 1 (history/supervisor-h-1-10.jsonl) was found gone, and no receipt accounts for it"
    files = (recorded("supervisor", 1), recorded("supervisor", 2, (None, resumes(1))))
    assert told(*files) == [words]
    assert told(*files, receipts=(receipt("sigkill", "supervisor", None, 0, 1),)) == []
    assert told(*files, receipts=(receipt("slow", "supervisor", None, 0, 1),)) == [words]
    assert told(*files, receipts=(receipt("sigkill", "supervisor", None, 0, 2),)) == [words]
    assert told(recorded("supervisor", 1, closed=True), files[1]) == []
    assert told(recorded("worker", 1, closed=True), files[1]) == [words]


def test_each_supervisor_that_was_found_gone_is_told_once() -> None:
    files = [recorded("supervisor", 3, (None, resumes(1))), recorded("supervisor", 4, (None, resumes(1, 2)))]
    assert [text[:12] for text in told(*files)] == ["supervisor 1", "supervisor 2"]


# -- of a few lines: crashes of processes that nobody named


def ended(pid: int, signal: int | None, code: int | None = None) -> Exited:
    return Exited(pid, 10 * pid, signal, code)


def crashed(signal: int | None, *others: HistoryFile, at: int = 5, boot: str = "b",
            receipts: tuple[Receipt, ...] = ()) -> list[str]:  # fmt: skip
    """What is told of a process that ended at this instant."""
    launcher = recorded("launcher", 8, (None, ended(9, signal), at), boot=boot)
    return told(launcher, *others, receipts=receipts)


LEADS = recorded("supervisor", 1, (0, Training(), 4), (0, Training(), 9), t_ns=3)


def test_ways_to_end_a_process_that_are_no_crash() -> None:
    """By SIGHUP, SIGINT, SIGKILL and SIGTERM, or by itself."""
    for signal in (1, 2, 9, 15, None):
        assert crashed(signal, LEADS) == []


def test_signals_that_are_a_crash() -> None:
    for signal in (3, 4, 6, 7, 8, 10, 11, 12, 13, 14, 16, 31):
        assert crashed(signal, LEADS) == [f"process 9 died by signal {signal}, and no receipt accounts for it"]


@pytest.mark.parametrize(("at", "led"), [(2, False), (3, False), (4, True), (8, True), (9, True), (10, False)])
def test_a_crash_counts_from_the_first_word_of_a_supervisor_to_its_last(at: int, led: bool) -> None:
    assert len(crashed(11, LEADS, at=at)) == led


@pytest.mark.parametrize("over", [Finished(12), GaveUp("no candidate")])
@pytest.mark.parametrize(("at", "led"), [(5, True), (6, True), (7, False), (9, False)])
def test_a_crash_counts_until_all_is_over(over: Finished | GaveUp, at: int, led: bool) -> None:
    supervisor = recorded("supervisor", 1, (0, Training(), 2), (0, over, 6), (0, GaveUp(""), 7), (0, Training(), 9),
                          t_ns=1)  # fmt: skip
    assert len(crashed(11, supervisor, at=at)) == led


def test_a_crash_counts_while_a_supervisor_of_the_same_boot_leads() -> None:
    assert crashed(11) == []
    assert crashed(11, LEADS, boot="c") == []
    assert crashed(11, recorded("worker", 1, (0, Joined(0), 9), t_ns=3)) == []
    assert crashed(11, recorded("supervisor", 1, (0, Training(), 9), opened=False, t_ns=3)) == []
    late = recorded("supervisor", 2, (0, Training(), 30), t_ns=20)
    assert len(crashed(11, late, LEADS)) == 1


def test_a_crash_of_a_process_that_was_named_or_struck_is_told_elsewhere() -> None:
    named = recorded("supervisor", 1, (0, ProcessNamed("rank", 0, 9, 90, "h", "")), (0, Training(), 9), t_ns=3)
    other = recorded("supervisor", 1, (0, ProcessNamed("rank", 0, 9, 91, "h", "")), (0, Training(), 9), t_ns=3)
    assert crashed(11, named) == []
    assert len(crashed(11, other)) == 1
    assert crashed(11, LEADS, receipts=(receipt("sigkill", "standby", None, 0, 9),)) == []
    assert len(crashed(11, LEADS, receipts=(receipt("sigkill", "standby", None, 0, 8),))) == 1
    assert len(crashed(11, LEADS, receipts=(receipt("slow", "standby", None, 0, 9),))) == 1


def test_each_crash_is_told() -> None:
    ends = ((9, 9), (10, 11), (11, None, 1), (12, 6))
    launcher = recorded("launcher", 8, *((None, ended(*end), 5) for end in ends))
    assert [text[:28] for text in told(launcher, LEADS)] == [
        "process 10 died by signal 11",
        "process 12 died by signal 6,",
    ]
