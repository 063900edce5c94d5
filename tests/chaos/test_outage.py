"""An outage of the store, and objects that are asked again: over a real store."""

from __future__ import annotations

import threading
import time
from pathlib import Path

import pytest

from chaos.faults import Outage
from chaos.outage import FlakyObjects, Weather
from storage.errors import AlreadyExists, NotThere, Unavailable
from storage.objects import LocalObjects, Objects, Reached, no_point
from storage.retrying import Retrying
from storage.shard import Written, write_ledger, write_shard

HEADER, DATA = b"8 bytes.", memoryview(bytes(range(100)))


class Store:
    """A store that one process sees through bad weather, and what was said of it."""

    def __init__(self, folder: Path, deadline_s: float = 5.0) -> None:
        self.local, self.weather = LocalObjects(folder), Weather()
        self.flaky = FlakyObjects(self.local, self.weather)
        self.failures: list[str] = []
        self.objects = Retrying(self.flaky, deadline_s, lambda error: self.failures.append(error.where))


@pytest.fixture
def store(tmp_path: Path) -> Store:
    return Store(tmp_path)


def test_so_many_operations_fail_each_in_its_own_words(store: Store) -> None:
    store.local.create("a/x", b"1")
    store.weather.turn(Outage(operations=6))
    for use in (
        lambda: store.flaky.read("a/x"), lambda: store.flaky.size("a/x"), lambda: store.flaky.list("a"),
        lambda: store.flaky.create("a/y", b""), lambda: store.flaky.remove("a/x"),
        lambda: store.flaky.quarantine("a/x"),
    ):  # fmt: skip
        with pytest.raises(Unavailable, match=r"^a.*Input/output error"):
            use()
    assert store.flaky.list("a") == ["x"]  # nothing was done, and now it answers


def test_for_so_many_seconds_everything_fails(store: Store) -> None:
    store.local.create("a/x", b"1")
    started = time.monotonic()
    store.weather.turn(Outage(for_s=0.2))
    assert store.objects.read("a/x") == b"1"
    assert time.monotonic() - started >= 0.2
    assert set(store.failures) == {"a/x"}


def test_reading_and_creating_again(store: Store) -> None:
    store.weather.turn(Outage(operations=2))
    store.objects.create("a/x", b"1")
    store.weather.turn(Outage(operations=1))
    assert store.objects.read("a/x") == b"1"
    assert store.failures == ["a/x"] * 3
    with pytest.raises(AlreadyExists):
        store.objects.create("a/x", b"1")  # not ours: there was no failure before
    with pytest.raises(NotThere):
        store.objects.read("a/y")


class Ambiguous(LocalObjects):
    """Creates, and then does not say so."""

    fails = 1

    def create(self, name: str, data: bytes, reached: Reached = no_point) -> None:
        super().create(name, data, reached)
        if self.fails:
            self.fails -= 1
            raise Unavailable(name, "no answer")


def test_what_was_created_without_an_answer_is_compared(store: Store, tmp_path: Path) -> None:
    Retrying(Ambiguous(tmp_path), 5.0).create("a/x", b"1")
    assert store.local.read("a/x") == b"1"
    store.weather.turn(Outage(operations=1))
    with pytest.raises(AlreadyExists):  # somebody else took the name, and has something else there
        store.objects.create("a/x", b"2")
    assert store.local.read("a/x") == b"1"


@pytest.mark.parametrize("operations", [1, 2, 5])
def test_a_shard_is_written_anew_from_its_first_byte(store: Store, operations: int) -> None:
    """The outage begins in its middle: what is there then is removed first, as soon as that can be done."""
    begun = threading.Event()

    def reached(point: str) -> None:
        if point == "shard.half" and not begun.is_set():
            begun.set()
            store.weather.turn(Outage(operations=operations))

    def write(objects: Objects) -> Written:
        return write_shard(objects, "shards/x", HEADER, DATA, reached)

    written = store.objects.rewritten("shards/x", write)
    assert store.local.read("shards/x") == HEADER + DATA
    assert written.bytes == 108
    assert len(store.failures) == operations


def test_a_ledger_segment_too(store: Store) -> None:
    store.weather.turn(Outage(operations=1))
    store.objects.rewritten("ledger/x", lambda to: write_ledger(to, "ledger/x", b"rows"))
    assert store.local.read("ledger/x") == b"rows"


def test_at_the_deadline_the_error_is_the_stores_own(tmp_path: Path) -> None:
    store = Store(tmp_path, deadline_s=0.2)
    store.weather.turn(Outage(for_s=60))
    started = time.monotonic()
    with pytest.raises(Unavailable, match="a/x"):
        store.objects.read("a/x")
    assert time.monotonic() - started < 5
    assert 2 <= len(store.failures) <= 4
