"""Gradients summed over ranks by real gloo: alone, between two processes, and when the other one is gone."""

from __future__ import annotations

import math
import os
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
import torch
import torch.distributed as dist
from reducer_peer import network
from torch import nn

from trainers.errors import Interrupted
from trainers.reducer import Reducer, agree, join_group, leave_group, open_store

DEADLINE_S = 20.0


class Peer:
    """The process that is rank 1, and the conversation with it."""

    def __init__(self) -> None:
        path = [str(Path(__file__).parents[2]), os.environ.get("PYTHONPATH", "")]
        self.process = subprocess.Popen(
            [sys.executable, Path(__file__).parent / "reducer_peer.py"], stdin=subprocess.PIPE, stdout=subprocess.PIPE,
            text=True, env={**os.environ, "PYTHONPATH": os.pathsep.join(path)},
        )  # fmt: skip

    def say(self, line: str) -> None:
        assert self.process.stdin is not None
        self.process.stdin.write(line + "\n")
        self.process.stdin.flush()

    def hear(self) -> str:
        assert self.process.stdout is not None
        return self.process.stdout.readline().strip()

    def join(self, attempt: int) -> object:
        """Both processes join the group of `attempt`. Returns the store, which must outlive the group."""
        store, host, port = open_store(DEADLINE_S)
        self.say(f"join {attempt} {host} {port}")
        join_group(attempt, 0, 2, host, port, DEADLINE_S)
        assert self.hear() == "join"
        return store


@pytest.fixture(scope="module")
def living() -> Iterator[list[Peer]]:
    """The peer that was started last, if any: starting one costs an import of torch."""
    started: list[Peer] = []
    yield started
    for peer in started:
        peer.process.kill()
        peer.process.communicate()


@pytest.fixture
def peer(living: list[Peer]) -> Peer:
    if not living or living[-1].process.poll() is not None:
        living.append(Peer())
        assert living[-1].hear() == "ready"
    return living[-1]


@pytest.fixture(autouse=True)
def _no_group_is_left() -> Iterator[None]:
    yield
    leave_group()


def filled(model: nn.Module, number: float) -> Reducer:
    reducer = Reducer(model, 2)
    for parameter in model.parameters():
        assert parameter.grad is not None
        parameter.grad.fill_(number)
    return reducer


def gradients(model: nn.Module) -> set[float]:
    return {value for p in model.parameters() if p.grad is not None for value in p.grad.reshape(-1).tolist()}


def test_every_parameter_has_a_gradient_from_the_start() -> None:
    model = network()
    Reducer(model, 1)
    assert gradients(model) == {0.0}
    model[0](torch.ones(2)).sum().backward()  # type: ignore[operator]
    used, unused = (list(each.parameters()) for each in model.children())
    assert all(p.grad is not None and bool(p.grad.any()) for p in used)
    assert all(p.grad is not None and not p.grad.any() for p in unused)  # zeros, not None: all ranks reduce alike


def test_a_frozen_parameter_stays_out() -> None:
    model = network()
    frozen = next(model.parameters()).requires_grad_(False)
    Reducer(model, 1)
    assert frozen.grad is None


def test_microbatches_add_up_until_they_are_cleared() -> None:
    model = nn.Linear(2, 1, bias=False)
    reducer = Reducer(model, 1)
    for _ in range(3):
        model(torch.tensor([1.0, 2.0])).sum().backward()
    assert model.weight.grad is not None
    assert model.weight.grad.tolist() == [[3.0, 6.0]]
    assert reducer.norm() == pytest.approx(math.sqrt(45))
    reducer.zero()
    assert model.weight.grad.tolist() == [[0.0, 0.0]]
    assert reducer.norm() == 0.0


def test_the_norm_is_over_all_parameters_of_whatever_type() -> None:
    model = network()
    reducer = filled(model, 2.0)
    assert reducer.norm() == pytest.approx(2 * math.sqrt(sum(p.numel() for p in model.parameters())))


def test_a_rank_alone_needs_no_group() -> None:
    model = network()
    join_group(0, 0, 1, "nowhere.invalid", 1, 0.1)
    assert not dist.is_initialized()
    reducer = Reducer(model, 1)
    assert reducer.reduce(2.5) == (2.5, False)
    assert reducer.reduce(2.5, notice=True) == (2.5, True)
    assert agree({"model": "x"}, 1)


def test_two_ranks_sum_gradients_and_losses(peer: Peer) -> None:
    model = network()
    store = peer.join(0)
    reducer = filled(model, 0.5)
    peer.say("reduce 2.25")
    assert reducer.reduce(0.125) == (2.375, False)
    assert peer.hear() == "reduce 2.375"
    assert gradients(model) == {2.75}
    for ours, theirs in ((True, ""), (False, " notice"), (True, " notice")):  # one rank's notice is known to both
        peer.say(f"reduce 1.5{theirs}")
        assert reducer.reduce(0.5, ours) == (2.0, True)
        assert peer.hear() == "reduce 2.0 noticed"
    for own, same in (("a" * 80, True), ("b" * 80, False)):
        peer.say("agree " + "a" * 80)
        assert agree({"model": own}, 2) is same
        assert peer.hear() == f"agree {same}"
    peer.say("leave")
    assert peer.hear() == "leave"
    del store


def test_another_attempt_forms_another_group(peer: Peer) -> None:
    """As after a restart: who is still in the old group leaves it by joining."""
    model = network()
    stores = [peer.join(3), peer.join(4)]
    reducer = filled(model, 1.0)
    peer.say("reduce 4")
    assert reducer.reduce(1.0) == (5.0, False)
    assert peer.hear() == "reduce 5.0"
    del stores


def test_a_killed_peer_interrupts_the_reduction_at_once(peer: Peer) -> None:
    store = peer.join(0)
    reducer = filled(network(), 1.0)
    started = time.monotonic()
    killer = threading.Timer(0.2, peer.process.kill)
    killer.start()
    with pytest.raises(Interrupted, match="a peer was lost during the reduction"):
        reducer.reduce(1.0)
    killer.join()
    peer.process.wait(DEADLINE_S)
    assert time.monotonic() - started < DEADLINE_S / 2  # by the closed connection, not by the deadline
    with pytest.raises(Interrupted, match="a peer was lost while the ranks compared"):
        agree({"model": "a"}, 2)
    leave_group()
    assert not dist.is_initialized()
    del store


def test_a_peer_that_does_not_come_interrupts_at_the_deadline() -> None:
    store, host, port = open_store(DEADLINE_S)
    with pytest.raises(Interrupted, match="rank 0 could not join the group of attempt 5"):
        join_group(5, 0, 2, host, port, 0.5)
    del store


def test_who_could_not_join_one_group_joins_the_next(peer: Peer) -> None:
    """As a survivor whose peer was killed while they joined: torch has counted the group that never came to be."""
    store, host, port = open_store(DEADLINE_S)
    for attempt in (5, 6):
        with pytest.raises(Interrupted, match=f"could not join the group of attempt {attempt}"):
            join_group(attempt, 0, 2, host, port, 0.5)
    assert not dist.is_initialized()
    stores = [store, peer.join(7)]
    reducer = filled(network(), 1.0)
    peer.say("reduce 4")
    assert reducer.reduce(1.0) == (5.0, False)
    assert peer.hear() == "reduce 5.0"
    del stores


def test_a_store_that_is_gone_interrupts() -> None:
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        with pytest.raises(Interrupted, match=r"rank 1 could not join .*\[Errno 111\]"):  # at once, not at the deadline
            join_group(2, 1, 2, "127.0.0.1", taken.getsockname()[1], 60.0)
