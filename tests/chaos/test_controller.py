"""The controller with real processes: kills at planned times, and gates let go by observed deaths."""

from __future__ import annotations

import signal
import subprocess
import sys
import threading
from collections.abc import Callable
from pathlib import Path

import pytest

from chaos.controller import Controller
from chaos.faults import Fault, FaultKind, Gate
from chaos.gates import create_gate, hold_gate, wait_held
from chaos.points import Role
from chaos.receipts import has_receipt, read_receipts, receipt_for, write_receipt
from storage.history import History
from storage.process import ProcessId, is_stopped, start_ticks, this_host
from trainers.events import (
    AttemptStarted,
    DeathDetected,
    DeathObserved,
    Finished,
    RankPlaced,
    StepDone,
    TrainingStarted,
)

Sleeper = tuple[subprocess.Popen[bytes], ProcessId]
Wait = Callable[[Callable[[], object]], None]


def timed(
    kind: FaultKind = FaultKind.SIGKILL, *, attempt: int = 0, after_s: float = 0.02, gate: Gate | None = None
) -> Fault:
    return Fault("f0", kind, attempt, Role.RANK, 1, None, None, after_s, gate)


def controller(folder: Path, *faults: Fault, said: list[str] | None = None) -> Controller:
    log = [] if said is None else said
    return Controller("run", folder, faults, gate_deadline_s=2.0, log=log.append)


def train(controller: Controller, target: ProcessId, *, attempt: int = 0, rank: int | None = 1) -> None:
    controller.notify(AttemptStarted(attempt))
    controller.notify(RankPlaced(attempt, "rank", rank, target.pid, target.start_ticks, target.host))
    controller.notify(TrainingStarted(attempt))
    controller.notify(StepDone(attempt, 0, 1, 0.5))


def test_a_timed_kill_has_its_receipt_and_strikes(run_folder: Path, sleeper: Sleeper) -> None:
    process, target = sleeper
    with controller(run_folder, timed()) as watching:
        train(watching, target)
        assert process.wait(20) == -signal.SIGKILL
    (receipt,) = read_receipts(run_folder)
    assert (receipt.target, receipt.kind, receipt.rank) == (target, "sigkill", 1)
    assert (receipt.point, receipt.hit, receipt.history) == (None, None, None)


@pytest.mark.parametrize(("heeds", "end"), [("SIG_IGN", signal.SIGKILL), ("SIG_DFL", signal.SIGTERM)])
def test_a_timed_notice_ends_by_itself_or_by_a_kill_when_its_grace_is_over(
    run_folder: Path, heeds: str, end: signal.Signals
) -> None:
    code = f"import signal, time; signal.signal(15, signal.{heeds}); print('ready', flush=True); time.sleep(60)"
    process = subprocess.Popen([sys.executable, "-S", "-c", code], stdout=subprocess.PIPE)
    assert process.stdout is not None
    assert process.stdout.readline() == b"ready\n"
    target = ProcessId(this_host(), process.pid, start_ticks(process.pid) or 0)
    fault = Fault("f0", FaultKind.SIGTERM, 0, Role.RANK, 1, None, None, 0.02, None, grace_s=0.3)
    with controller(run_folder, fault) as watching:
        train(watching, target)
        assert process.wait(20) == -end
    process.stdout.close()
    (receipt,) = read_receipts(run_folder)
    assert (receipt.target, receipt.kind, receipt.settings) == (target, "sigterm", {"grace_s": 0.3})


def test_a_timed_hang_stops_the_process(run_folder: Path, sleeper: Sleeper, wait_for: Wait) -> None:
    process, target = sleeper
    with controller(run_folder, timed(FaultKind.HANG)) as watching:
        train(watching, target)
        wait_for(lambda: is_stopped(target))
    assert process.poll() is None
    assert has_receipt(run_folder, "f0")


def test_the_receipt_says_how_far_the_struck_process_had_recorded(run_folder: Path, wait_for: Wait) -> None:
    code = (
        "import sys, time; from pathlib import Path; from storage.history import History\n"
        "history = History.open(Path(sys.argv[1]), 'worker', 'run'); history.record('joined', 0)\n"
        "print(history.process.start_ticks, flush=True); time.sleep(60)"
    )
    root = Path(__file__).resolve().parents[2]
    process = subprocess.Popen(
        [sys.executable, "-c", code, str(run_folder / "history")], cwd=root, stdout=subprocess.PIPE, text=True
    )
    assert process.stdout is not None
    target = ProcessId(
        History.open(run_folder, "a", "r").process.host, process.pid, int(process.stdout.readline())
    )
    with controller(run_folder, timed()) as watching:
        train(watching, target)
        assert process.wait(20) == -signal.SIGKILL
    head = read_receipts(run_folder)[0].history
    assert head is not None
    assert (head.file, head.n) == (f"worker-{target.host}-{target.pid}-{target.start_ticks}.jsonl", 1)


def test_what_was_planned_for_an_attempt_ends_with_it(run_folder: Path, sleeper: Sleeper) -> None:
    process, target = sleeper
    with controller(run_folder, timed(after_s=0.2)) as watching:
        train(watching, target)
        train(watching, target, attempt=1)
        with pytest.raises(subprocess.TimeoutExpired):
            process.wait(0.4)
    assert not has_receipt(run_folder, "f0")


def test_nothing_strikes_after_the_end(run_folder: Path, sleeper: Sleeper) -> None:
    process, target = sleeper
    watching = controller(run_folder, timed(after_s=0.1))
    with watching:
        train(watching, target)
        watching.notify(Finished(10))
        with pytest.raises(subprocess.TimeoutExpired):
            process.wait(0.2)
    watching.close()


@pytest.mark.parametrize("wrong", ["start_ticks", "pid", "host", "rank"])
def test_only_the_very_process_is_struck(
    run_folder: Path, sleeper: Sleeper, wait_for: Wait, wrong: str
) -> None:
    process, target = sleeper
    said: list[str] = []
    other = {
        "start_ticks": ProcessId(target.host, target.pid, target.start_ticks + 1),
        "pid": ProcessId(target.host, 2**22, target.start_ticks),
        "host": ProcessId("elsewhere", target.pid, target.start_ticks),
        "rank": target,
    }[wrong]
    with controller(run_folder, timed(), said=said) as watching:
        train(watching, other, rank=0 if wrong == "rank" else 1)
        wait_for(lambda: said)
    assert said[0].startswith("fault f0")
    assert "did not strike: " in said[0]
    assert process.poll() is None
    assert not has_receipt(run_folder, "f0")


def test_a_timed_kill_behind_a_gate_that_nobody_holds(
    run_folder: Path, sleeper: Sleeper, wait_for: Wait
) -> None:
    process, target = sleeper
    create_gate(run_folder, "f0")
    said: list[str] = []
    fault = timed(gate=Gate(Role.COMMITTER, None, "publish.before", 1))
    with Controller("run", run_folder, (fault,), gate_deadline_s=0.05, log=said.append) as watching:
        train(watching, target)
        wait_for(lambda: said)
    assert "not held within 0.05 s" in said[0]
    assert process.poll() is None


class Holder:
    """A thread at the gate of f0."""

    def __init__(self, folder: Path) -> None:
        create_gate(folder, "f0")
        self.thread = threading.Thread(target=hold_gate, args=(folder, "f0", 20.0))
        self.thread.start()
        wait_held(folder, "f0", 20.0)  # a release before that would be lost

    def left(self, within_s: float) -> bool:
        self.thread.join(within_s)
        return not self.thread.is_alive()


def gated(kind: FaultKind) -> Fault:
    return Fault("f0", kind, 0, Role.RANK, 1, "step.end", 1, None, Gate(Role.RANK, 0, "shard.half", 1))


def struck(folder: Path, fault: Fault, target: ProcessId) -> None:
    assert write_receipt(folder, receipt_for(fault, "run", 1, target, None))


def test_a_gate_is_left_once_the_killed_process_is_gone(run_folder: Path, sleeper: Sleeper) -> None:
    process, target = sleeper
    holder, fault = Holder(run_folder), gated(FaultKind.SIGKILL)
    with controller(run_folder, fault) as watching:
        watching.notify(DeathObserved(target.pid, target.start_ticks, 9))  # another death: no receipt yet
        struck(run_folder, fault, target)
        watching.notify(DeathObserved(target.pid, target.start_ticks + 1, 9))
        watching.notify(DeathDetected(0, "rank", 1, target.pid, target.start_ticks, "actor_died"))
        assert not holder.left(0.1)  # it lives
        process.kill()
        process.wait()
        watching.notify(DeathDetected(0, "rank", 1, target.pid, target.start_ticks, "actor_died"))
        assert holder.left(20)


@pytest.mark.parametrize("kind", [FaultKind.HANG, FaultKind.EXCEPTION])
def test_a_gate_is_left_once_a_hang_or_exception_is_detected(
    run_folder: Path, sleeper: Sleeper, kind: FaultKind
) -> None:
    _, target = sleeper
    holder, fault = Holder(run_folder), gated(kind)
    struck(run_folder, fault, target)
    watching = controller(run_folder, fault)
    watching.notify(DeathDetected(0, "rank", 1, target.pid, target.start_ticks, "stopped"))
    assert holder.left(20)


def test_a_successor_releases_what_its_predecessor_could_not(
    run_folder: Path, sleeper: Sleeper, wait_for: Wait
) -> None:
    holder, fault = Holder(run_folder), gated(FaultKind.SIGKILL)
    struck(run_folder, fault, sleeper[1])

    def takes_over() -> bool:
        with controller(run_folder, fault):
            return holder.left(0.05)

    wait_for(takes_over)  # the holder may not stand at the gate yet the first time


def test_a_broken_receipt_keeps_the_gate_shut_and_is_said(run_folder: Path) -> None:
    (run_folder / "history" / "receipts" / "f0.json").write_text("cut")
    said: list[str] = []
    controller(run_folder, gated(FaultKind.SIGKILL), said=said).notify(DeathObserved(1, 1, 9))
    assert said[0].startswith("the gate of fault f0 stays shut: ")


def test_a_standby_that_became_a_rank_is_no_standby(
    run_folder: Path, sleeper: Sleeper, wait_for: Wait
) -> None:
    process, target = sleeper
    said: list[str] = []
    fault = Fault("f0", FaultKind.SIGKILL, 0, Role.STANDBY, None, None, None, 0.01, None)
    with controller(run_folder, fault, said=said) as watching:
        watching.notify(RankPlaced(0, "standby", None, target.pid, target.start_ticks, target.host))
        train(watching, target)
        wait_for(lambda: said)
    assert process.poll() is None


def test_the_controller_knows_its_own_process_as_the_supervisor(run_folder: Path) -> None:
    code = (
        "import sys, time; from pathlib import Path\n"
        "from chaos.controller import *; from chaos.points import Role\n"
        "fault = Fault('f0', FaultKind.SIGKILL, 0, Role.SUPERVISOR, None, None, None, 0.01, None)\n"
        "with Controller('run', Path(sys.argv[1]), (fault,), 1.0) as watching:\n"
        "    watching.notify(TrainingStarted(0)); time.sleep(60)"
    )
    root = Path(__file__).resolve().parents[2]
    done = subprocess.run([sys.executable, "-c", code, str(run_folder)], cwd=root, timeout=60)
    assert done.returncode == -signal.SIGKILL
    assert read_receipts(run_folder)[0].role == "supervisor"
