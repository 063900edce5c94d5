from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from dataclasses import replace

import pytest

from storage.errors import Unavailable
from storage.process import ProcessId, boot_id, current_process, is_alive, is_stopped, start_ticks, this_host

# The first thread ends while another goes on: the kernel then calls the process a zombie.
HEADLESS = """
import ctypes, threading, time
threading.Thread(target=time.sleep, args=(60,)).start()
ctypes.CDLL(None).syscall({exit}, 0)
"""


def until(condition: Callable[[], bool]) -> None:
    deadline = time.monotonic() + 20
    while not condition():
        assert time.monotonic() < deadline, "did not happen within 20 s"
        time.sleep(0.005)


@pytest.fixture
def child() -> Iterator[subprocess.Popen[bytes]]:
    process = subprocess.Popen(["sleep", "60"])
    yield process
    process.kill()
    process.wait()


def identify(pid: int) -> ProcessId:
    ticks = start_ticks(pid)
    assert ticks is not None
    return ProcessId(this_host(), pid, ticks)


def state(pid: int) -> str:
    with open(f"/proc/{pid}/stat") as file:
        return file.read().rpartition(") ")[2][0]


def test_current_process_is_alive_and_agrees_with_proc() -> None:
    me = current_process()
    with open("/proc/self/stat") as file:
        assert me.start_ticks == int(file.read().rpartition(")")[2].split()[19])
    assert me.pid == os.getpid()
    assert is_alive(me)
    assert not is_stopped(me)


def test_no_process_has_no_start(child: subprocess.Popen[bytes]) -> None:
    child.kill()
    child.wait()
    assert start_ticks(child.pid) is None


def test_another_start_under_the_same_pid_is_dead() -> None:
    me = current_process()
    assert not is_alive(replace(me, start_ticks=me.start_ticks + 1))


def test_a_stopped_process_is_alive_and_stopped(child: subprocess.Popen[bytes]) -> None:
    process = identify(child.pid)
    child.send_signal(signal.SIGSTOP)
    until(lambda: is_stopped(process))
    assert is_alive(process)
    child.send_signal(signal.SIGCONT)
    until(lambda: not is_stopped(process))


def test_a_zombie_is_dead(child: subprocess.Popen[bytes]) -> None:
    process = identify(child.pid)
    child.kill()
    until(lambda: state(child.pid) == "Z")
    assert not is_alive(process)
    assert not is_stopped(process)


@pytest.mark.skipif(os.uname().machine != "x86_64", reason="the number of the exit system call is x86-64's")
def test_a_process_whose_first_thread_ended_is_alive() -> None:
    child = subprocess.Popen([sys.executable, "-c", HEADLESS.format(exit=60)])
    try:
        process = identify(child.pid)
        until(lambda: state(child.pid) == "Z")
        assert is_alive(process)
    finally:
        child.kill()
        child.wait()
    assert not is_alive(process)


def test_another_host_cannot_be_known() -> None:
    with pytest.raises(Unavailable, match="elsewhere"):
        is_alive(ProcessId("elsewhere", 1, 1))


def test_boot_id_is_stable() -> None:
    assert boot_id() == boot_id()
    assert len(boot_id()) == 36


def test_without_proc_nobody_knows_who_it_is(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("storage.process.start_ticks", lambda pid: None)
    with pytest.raises(Unavailable, match=r"cannot be read for the calling process: is /proc mounted\?"):
        current_process()


def test_one_that_is_reaped_while_it_is_looked_at_is_gone(monkeypatch: pytest.MonkeyPatch) -> None:
    """A zombie when its state was read, nothing any more when its threads are counted."""
    child = subprocess.Popen(["true"])
    ticks = start_ticks(child.pid)
    assert ticks is not None
    os.waitid(os.P_PID, child.pid, os.WEXITED | os.WNOWAIT)
    listed = os.listdir

    def reaping(path: str) -> list[str]:
        child.wait()
        return listed(path)

    monkeypatch.setattr(os, "listdir", reaping)
    assert not is_alive(ProcessId(this_host(), child.pid, ticks))
    assert child.returncode == 0
