"""Strikes on real processes: each test starts a child, which arms itself and passes points."""

from __future__ import annotations

import pickle
import signal
import subprocess
import sys
import textwrap
import threading
import time
from pathlib import Path

import pytest

import chaos
from chaos.errors import GateNotHeld, GateNotReleased
from chaos.faults import Fault, FaultKind, Gate, InjectedFault
from chaos.gates import create_gate, hold_gate, release_gate, wait_held
from chaos.points import Role
from chaos.receipts import has_receipt, read_receipts, receipt_path
from chaos.striker import Striker, release_struck_gates
from storage.history import History, read_history
from storage.process import ProcessId, is_stopped, start_ticks, this_host

ROOT = Path(__file__).resolve().parents[2]
RANK_1 = Fault("f0", FaultKind.SIGKILL, 0, Role.RANK, 1, "microbatch.backward", 3)
PRELUDE = """
import sys, threading
from pathlib import Path
from chaos.faults import *
from chaos.points import Role
from chaos.striker import Striker
from storage.history import History
folder = Path(sys.argv[1])
def fault(kind="sigkill", point="microbatch.backward", hit=3, rank=1, gate=None, role=Role.RANK):
    return Fault("f0", FaultKind(kind), 0, role, rank, point, hit, None, gate)
def striker(*faults, rank=1, history=None, deadline_s=5.0, role="rank"):
    made = Striker("run", folder, faults, gate_deadline_s=deadline_s)
    made.enter(0, role, rank, history)
    return made
"""


def start(run_folder: Path, body: str) -> subprocess.Popen[str]:
    code = PRELUDE + textwrap.dedent(body)
    return subprocess.Popen(
        [sys.executable, "-c", code, str(run_folder)],
        cwd=ROOT,
        text=True,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
    )


def finish(child: subprocess.Popen[str]) -> tuple[int, str, str]:
    out, err = child.communicate(timeout=30)
    return child.returncode, out, err


def armed(run_folder: Path, *faults: Fault, rank: int | None = 1, record: bool = False) -> Striker:
    striker = Striker("run", run_folder, faults, record, gate_deadline_s=5.0)
    striker.enter(0, "rank", rank, None)
    return striker


def test_sigkill_at_the_third_hit_with_receipt_and_head(run_folder: Path) -> None:
    child = start(
        run_folder,
        """
        history = History.open(folder / "history", "worker", "run")
        history.record("joined", attempt=0, rank=1, world=2)
        reached = striker(fault(), history=history)
        for i in range(5):
            reached("microbatch.forward"); reached("microbatch.backward")
            print(i, flush=True)
    """,
    )
    ticks = start_ticks(child.pid)
    code, out, err = finish(child)
    assert (code, out, err) == (-signal.SIGKILL, "0\n1\n", "")
    (receipt,) = read_receipts(run_folder)
    assert receipt.target == ProcessId(this_host(), child.pid, ticks)
    assert (receipt.fault, receipt.attempt, receipt.role, receipt.rank) == ("f0", 0, "rank", 1)
    assert (receipt.point, receipt.hit, receipt.kind) == ("microbatch.backward", 3, "sigkill")
    (history,) = (run_folder / "history").glob("*.jsonl")
    assert receipt.history == read_history(history).head
    assert [path.name for path in (run_folder / "history" / "receipts").iterdir()] == ["f0.json"]


def test_a_hang_stops_every_thread_and_can_be_continued(run_folder: Path) -> None:
    child = start(
        run_folder,
        """
        reached = striker(fault("hang", hit=1))
        reached("microbatch.backward")
        print("continued", flush=True)
    """,
    )
    process = ProcessId(this_host(), child.pid, start_ticks(child.pid) or 0)
    until = time.monotonic() + 20
    while not is_stopped(process) and time.monotonic() < until:
        time.sleep(0.01)
    assert is_stopped(process)
    assert has_receipt(run_folder, "f0")
    child.send_signal(signal.SIGCONT)
    assert finish(child)[:2] == (0, "continued\n")


def test_a_sigterm_comes_before_the_next_line_and_its_grace_ends_by_a_kill(run_folder: Path) -> None:
    child = start(
        run_folder,
        """
        import time
        from trainers.notice import notice_of_this_process
        notice = notice_of_this_process()
        notice.heeded = True
        reached = Striker("run", folder, (Fault("f0", FaultKind.SIGTERM, 0, Role.RANK, 1, "p", 1, grace_s=0.3),))
        reached.enter(0, "rank", 1, None)
        def train():
            print(notice.arrived(), flush=True)
            reached("p")
            print(notice.arrived(), flush=True)
            time.sleep(60)
        thread = threading.Thread(target=train)
        thread.start()
        thread.join()
    """,
    )
    started = time.monotonic()
    assert finish(child)[:2] == (-signal.SIGKILL, "False\nTrue\n")
    assert time.monotonic() - started >= 0.3
    assert read_receipts(run_folder)[0].settings == {"grace_s": 0.3}


def test_an_exception_is_raised_once_and_survives_pickling(run_folder: Path) -> None:
    fault = Fault("f0", FaultKind.EXCEPTION, 0, Role.RANK, 1, "step.end", 1)
    striker = armed(run_folder, fault)
    with pytest.raises(InjectedFault, match=r"f0: exception at attempt 0, rank 1, step.end hit 1") as caught:
        striker("step.end")
    again = pickle.loads(pickle.dumps(caught.value))
    assert (again.fault, again.passage) == ("f0", "attempt 0, rank 1, step.end hit 1")
    striker("step.end")
    armed(run_folder, fault)("step.end")  # a process that starts over


def test_the_receipt_decides_between_two_processes_at_the_same_passage(run_folder: Path) -> None:
    fault = Fault("f0", FaultKind.EXCEPTION, 0, Role.DATA, None, "data.read", 4)
    both = [Striker("run", run_folder, (fault,)) for _ in range(2)]
    for rank, striker in enumerate(both):
        striker.enter(0, "data", rank, None)
    with pytest.raises(InjectedFault):
        both[0].at("data.read", 4)
    both[1].at("data.read", 4)
    assert read_receipts(run_folder)[0].rank == 0


def test_only_its_own_attempt_role_and_rank_are_armed(run_folder: Path) -> None:
    fault = Fault("f0", FaultKind.EXCEPTION, 1, Role.RANK, 1, "step.end", 1)
    striker = pickle.loads(pickle.dumps(Striker("run", run_folder, (fault,))))
    for attempt, role, rank in ((0, "rank", 1), (1, "rank", 0), (1, "committer", None), (2, "rank", 1)):
        striker.enter(attempt, role, rank, None)
        striker("step.end")
    striker.enter(1, "rank", 1, None)
    striker("step.begin")
    with pytest.raises(InjectedFault):
        striker("step.end")


def test_entering_counts_from_zero(run_folder: Path) -> None:
    fault = Fault("f0", FaultKind.EXCEPTION, 0, Role.RANK, 1, "step.end", 2)
    striker = armed(run_folder, fault)
    striker("step.end")
    striker.enter(0, "rank", 1, None)
    striker("step.end")
    with pytest.raises(InjectedFault):
        striker("step.end")


def test_threads_share_one_count(run_folder: Path) -> None:
    fault = Fault("f0", FaultKind.EXCEPTION, 0, Role.RANK, 1, "step.end", 4000)
    striker, raised = armed(run_folder, fault), []

    def pass_points() -> None:
        for _ in range(1000):
            try:
                striker("step.end")
            except InjectedFault as error:
                raised.append(error)

    threads = [threading.Thread(target=pass_points) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(raised) == 1


def test_a_thread_that_outlives_its_attempt_counts_for_nobody(run_folder: Path) -> None:
    faults = tuple(
        Fault(f"f{attempt}", FaultKind.EXCEPTION, attempt, Role.RANK, 1, "shard.half", 2)
        for attempt in (0, 1)
    )
    striker = armed(run_folder, *faults)
    old = striker.bound()
    old("shard.half")
    striker.enter(1, "rank", 1, None)
    old("shard.half")
    striker("shard.half")
    with pytest.raises(InjectedFault, match="f1"):
        striker.bound()("shard.half")
    striker.enter(2, "rank", 1, None)
    striker.bound()("shard.half")


def test_recording_writes_the_counts_to_the_history(run_folder: Path) -> None:
    history = History.open(run_folder / "history", "worker", "run")
    striker = Striker("run", run_folder, (), record=True)
    striker.enter(2, "rank", 0, history)
    for _ in range(3):
        striker("step.end")
    striker("shard.half")
    striker.flush()
    history.close()
    body = read_history(history.path).lines[1].body
    assert (body["event"], body["attempt"], body["role"], body["rank"]) == ("passages", 2, "rank", 0)
    assert body["counts"] == {"shard.half": 1, "step.end": 3}


def test_user_code_reaches_the_current_striker(run_folder: Path) -> None:
    chaos.reached("user.checkpoint")
    armed(run_folder, Fault("f0", FaultKind.EXCEPTION, 0, Role.RANK, 1, "user.checkpoint", 1))
    with pytest.raises(InjectedFault):
        chaos.reached("user.checkpoint")


def test_killed_while_another_thread_stands_at_the_gate(run_folder: Path) -> None:
    create_gate(run_folder, "f0")
    child = start(
        run_folder,
        """
        gate = Gate(Role.RANK, 1, "shard.half", 1)
        reached = striker(fault(hit=1, gate=gate))
        saver = threading.Thread(target=lambda: (reached("shard.half"), print("went on", flush=True)))
        saver.start()
        reached("microbatch.backward")
        print("not struck", flush=True)
    """,
    )
    assert finish(child)[:2] == (-signal.SIGKILL, "")
    assert read_receipts(run_folder)[0].gate == Gate(Role.RANK, 1, "shard.half", 1)


def test_a_gate_in_another_process_is_held_until_the_death_was_seen(run_folder: Path) -> None:
    create_gate(run_folder, "f0")
    gate = 'gate=Gate(Role.COMMITTER, None, "publish.before", 2)'
    holder = start(
        run_folder,
        f"""
        reached = striker(fault({gate}, hit=1), rank=None, role="committer")
        reached("publish.before"); print("first", flush=True)
        reached("publish.before"); print("went on", flush=True)
    """,
    )
    victim = start(
        run_folder,
        f"""
        reached = striker(fault({gate}, hit=1))
        reached("microbatch.backward")
    """,
    )
    assert finish(victim)[0] == -signal.SIGKILL
    assert holder.poll() is None
    fault = Fault("f0", FaultKind.SIGKILL, 0, Role.RANK, 1, "p", 1, gate=Gate(Role.COMMITTER, None, "q", 2))
    release_struck_gates(run_folder, (fault,))
    assert finish(holder)[:2] == (0, "first\nwent on\n")


def test_nothing_strikes_when_the_gate_is_not_held(run_folder: Path) -> None:
    create_gate(run_folder, "f0")
    child = start(
        run_folder,
        """
        reached = striker(fault(hit=1, gate=Gate(Role.RANK, 0, "shard.half", 1)), deadline_s=0.1)
        reached("microbatch.backward")
    """,
    )
    code, _, err = finish(child)
    assert code == 1
    assert "GateNotHeld: gate of fault f0: not held within 0.1 s; the fault did not strike" in err
    assert not receipt_path(run_folder, "f0").exists()


def test_a_gate_whose_holder_died_is_not_held(run_folder: Path) -> None:
    create_gate(run_folder, "f0")

    def stand_in_vain() -> None:
        with pytest.raises(GateNotReleased, match=r"held for 0\.3 s and nothing struck"):
            hold_gate(run_folder, "f0", 0.3)

    holder = threading.Thread(target=stand_in_vain)
    holder.start()
    wait_held(run_folder, "f0", 5.0)
    holder.join()
    with pytest.raises(GateNotHeld):
        wait_held(run_folder, "f0", 0.05)
    assert not release_gate(run_folder, "f0")
