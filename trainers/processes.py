"""Ending processes for certain, wherever they run: by pid and start time, with the exit confirmed (invariant 6)."""

from __future__ import annotations

import os
import select
import signal
import time
from dataclasses import dataclass
from pathlib import Path

import ray
from ray.util.scheduling_strategies import NodeAffinitySchedulingStrategy

from storage.errors import StorageError
from storage.history import read_history
from storage.process import ProcessId, is_alive
from trainers.reports import Member

_POLL_S = 0.002


@dataclass(frozen=True)
class Exit:
    """How a process ended, as its parent saw it; both None if nobody could see it."""

    signal: int | None
    code: int | None


def kill_here(process: ProcessId, deadline_s: float) -> bool:
    """SIGKILL to exactly this process of this host; True once it can run no more code."""
    try:
        descriptor = os.pidfd_open(process.pid)
    except ProcessLookupError:
        return True
    try:
        if not is_alive(process):
            return True
        signal.pidfd_send_signal(descriptor, signal.SIGKILL)
        poll = select.poll()
        poll.register(descriptor, select.POLLIN)
        return bool(poll.poll(deadline_s * 1000))
    except ProcessLookupError:
        return True
    finally:
        os.close(descriptor)


def kill_member(member: Member, deadline_s: float) -> bool:
    """As `kill_here`, on the member's own node. False if the node does not answer in time."""
    if member.node == ray.get_runtime_context().get_node_id():
        return kill_here(member.process, deadline_s)
    strategy = NodeAffinitySchedulingStrategy(node_id=member.node, soft=False)
    task = ray.remote(kill_here).options(num_cpus=0, scheduling_strategy=strategy)
    try:
        return bool(ray.get(task.remote(member.process, deadline_s), timeout=deadline_s + 1))
    except Exception:  # a node that cannot be reached cannot confirm; the fence holds all the same
        return False


def exit_of(folder: Path, member: Member, deadline_s: float) -> Exit:
    """What the launcher recorded of the member's end; waits for the record up to the deadline."""
    path, limit = folder / member.launcher, time.monotonic() + deadline_s
    while path.is_file():
        try:
            for line in read_history(path).lines:
                if line.event == "exited":
                    return Exit(line.body["signal"], line.body["code"])
        except StorageError:
            break
        if time.monotonic() >= limit:
            break
        time.sleep(_POLL_S)
    return Exit(None, None)
