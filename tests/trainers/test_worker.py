"""The process around a rank: two threads that ask for its rank get the same one."""

from __future__ import annotations

import threading
from typing import Any

import pytest

from trainers.worker import Worker


def test_two_threads_that_ask_first_get_one_rank(monkeypatch: pytest.MonkeyPatch) -> None:
    """The supervisor opens a store while a standby still warms up: a second rank would close the first one's store."""
    entered, second, go_on = threading.Event(), threading.Event(), threading.Event()

    class Rank:
        def __init__(self, *_duty: object) -> None:
            (second if entered.is_set() else entered).set()
            go_on.wait(20)

    worker: Any = Worker.__new__(Worker)  # without the thread that ends an orphaned process
    worker._rank_or_none, worker._making, worker._notice = None, threading.Lock(), None
    monkeypatch.setattr("trainers.rank.Rank", Rank)
    monkeypatch.setattr(Worker, "_here", lambda self: type("Duty", (), {"spec": 0, "history": 0, "points": 0}))
    found: list[object] = []
    threads = [threading.Thread(target=lambda: found.append(worker._rank)) for _ in range(2)]
    threads[0].start()
    assert entered.wait(20)
    threads[1].start()
    assert not second.wait(0.3)  # without the lock it is set at once
    go_on.set()
    for thread in threads:
        thread.join(20)
    assert len(found) == 2
    assert found[0] is found[1]
