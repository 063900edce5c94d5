"""The asynchronous saver on a real store, with a committer that the test holds in its hand."""

from __future__ import annotations

import queue
import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import safetensors
import safetensors.torch
import torch
from state_kit import WORKLOADS, captured, step

from storage.errors import AlreadyExists, Fenced
from storage.history import History, read_history
from storage.ledger import LedgerRows, SegmentMeta, decode_segment
from storage.manifest import FileRecord
from storage.objects import LocalObjects
from storage.retrying import Retrying
from storage.shard import parse_shard, read_verified
from trainers.accumulation import Partial
from trainers.errors import Interrupted
from trainers.parts import LOCAL, part_digests
from trainers.reports import SaveReport
from trainers.saver import Saver, SaverIdentity
from trainers.source import Share
from trainers.staging import Staging
from trainers.state import Progress, live_digests, restore, tensor_digest
from trainers.workload import Workload

DEADLINE_S = 30.0


class Committer:
    """Receives reports; a report returns when the test answers it, with None or an error to raise."""

    def __init__(self) -> None:
        self.reports: queue.Queue[SaveReport] = queue.Queue()
        self.answers: queue.Queue[Exception | None] = queue.Queue()

    def __call__(self, report: SaveReport) -> None:
        self.reports.put(report)
        answer = self.answers.get(timeout=DEADLINE_S)
        if answer is not None:
            raise answer


class Rig:
    """One rank with its store, history and saver."""

    def __init__(self, folder: Path, name: str = "adam_steplr", rank: int = 0, ranks: int = 1) -> None:
        self.objects, self.committer = LocalObjects(folder / "store"), Committer()
        self.history = History.open(folder / "history", "worker", "r1")
        self.workload, self.progress = WORKLOADS[name](), Progress()
        self.points: list[str] = []
        self.at: Callable[[str], None] = lambda point: None
        self.saver = Saver(
            SaverIdentity("r1", 2, rank, ranks), Retrying(self.objects, 0.0), Staging(rank, ranks), self.history,
            self.committer, self._reached,
        )  # fmt: skip

    def _reached(self, point: str) -> None:
        self.points.append(point)
        self.at(point)

    def train_and_save(self) -> tuple[dict[str, torch.Tensor], dict[str, str]]:
        """One update and a save of it; returns the state of that moment."""
        first = self.progress.step
        step(self.workload, self.progress)
        state = captured(self.workload, self.progress)
        self.saver.save(self.workload, self.progress, rows(first), first)
        return state

    def events(self, name: str) -> list[dict[str, Any]]:
        path = self.history_path
        return [line.body for line in read_history(path).lines if line.event == name]

    @property
    def history_path(self) -> Path:
        return next(Path(self.objects.root).parent.glob("history/worker-*.jsonl"))


def rows(number: int) -> LedgerRows:
    positions = np.arange(6, dtype=np.int64)[::-1] + 6 * number
    return LedgerRows(
        positions, positions * 3, positions.astype(np.uint64), np.full(6, number, np.int64), np.zeros(6, np.int32)
    )


@pytest.fixture
def rig(tmp_path: Path) -> Iterator[Rig]:
    made = Rig(tmp_path)
    yield made
    made.committer.answers.put(None)
    made.saver.abandon(DEADLINE_S)


def test_what_is_written_is_the_state_of_the_moment(rig: Rig) -> None:
    tensors, texts = rig.train_and_save()
    digests = live_digests(rig.workload, rig.progress)
    for _ in range(3):
        step(rig.workload, rig.progress)  # training goes on while the save is under way
    report = rig.committer.reports.get(timeout=DEADLINE_S)
    rig.committer.answers.put(None)
    rig.saver.wait()

    shard_file, ledger_file = report.files
    data = read_verified(rig.objects, FileRecord(shard_file.path, "shard", 0, shard_file.bytes, shard_file.digest))
    by_library = safetensors.torch.load(bytes(data))
    assert by_library.keys() == tensors.keys()
    assert all(torch.equal(by_library[name], tensors[name]) for name in tensors)
    metadata = dict(parse_shard(data, shard_file.path).metadata)
    assert {k.removeprefix("part."): v for k, v in metadata.items() if k.startswith("part.")} == texts
    assert (metadata["run"], metadata["attempt"], metadata["step"], metadata["cursor"]) == ("r1", "2", "1", "6")
    assert {**report.replicated, **report.local} == {name: tensor_digest(tensor) for name, tensor in tensors.items()}
    assert report.parts == {part: digests[part] for part in LOCAL if part in digests}
    assert part_digests(["optimizer"], report.replicated, report.texts)["optimizer"] == (
        digests["optimizer"]
    )

    data = read_verified(rig.objects, FileRecord(ledger_file.path, "ledger", 0, ledger_file.bytes, ledger_file.digest))
    segment, meta = decode_segment(data, ledger_file.path)
    assert meta == SegmentMeta("r1", 2, 1, 0, 0, 0)
    assert segment.position.tolist() == list(range(6))


def test_the_safetensors_library_opens_the_file_with_its_metadata(rig: Rig) -> None:
    rig.train_and_save()
    report = rig.committer.reports.get(timeout=DEADLINE_S)
    rig.committer.answers.put(None)
    rig.saver.wait()
    path = Path(rig.objects.root) / report.files[0].path
    with safetensors.safe_open(path, framework="pt") as file:
        assert file.metadata()["format"] == "killpoint.shard/1"
        assert file.get_tensor("model/0.weight").shape == (8, 3)


def test_a_saved_state_is_taken_back(rig: Rig) -> None:
    _tensors, texts = rig.train_and_save()
    expected = live_digests(rig.workload, rig.progress)
    report = rig.committer.reports.get(timeout=DEADLINE_S)
    rig.committer.answers.put(None)
    rig.saver.wait()
    stored = safetensors.torch.load_file(Path(rig.objects.root) / report.files[0].path)
    fresh = WORKLOADS["adam_steplr"]()
    assert live_digests(fresh, restore(fresh, stored, texts)) == expected


def test_two_ranks_write_every_replicated_tensor_once(tmp_path: Path) -> None:
    seen: list[str] = []
    for rank in (0, 1):
        rig = Rig(tmp_path / str(rank), rank=rank, ranks=2)
        rig.committer.answers.put(None)
        tensors, _texts = rig.train_and_save()
        rig.saver.wait()
        report = rig.committer.reports.get(timeout=DEADLINE_S)
        seen += report.replicated
        assert set(report.local) == {name for name in tensors if name.startswith(("buffer/", "rng/"))}
        assert report.files[0].path == f"shards/s00000001-a0002-r000{rank}.safetensors"
    assert sorted(seen) == sorted(name for name in tensors if name.startswith(("model/", "optimizer/")))


def test_points_come_in_order_and_the_report_after_the_files_are_durable(rig: Rig) -> None:
    rig.committer.answers.put(None)
    rig.train_and_save()
    rig.saver.wait()
    background = [point for point in rig.points if point not in ("save.staged", "save.queued")]
    assert background == [
        "shard.opened", "shard.half", "shard.written", "shard.data_synced", "shard.synced", "ledger.opened",
        "ledger.written", "ledger.data_synced", "ledger.synced", "save.reported", "save.done",
    ]  # fmt: skip
    assert rig.points.index("save.staged") < rig.points.index("shard.opened")
    recorded = [line.event for line in read_history(rig.history_path).lines if line.event.startswith("save")]
    assert recorded == ["save_due", "save_staged", "save_written"]


def test_a_save_that_falls_due_waits_for_the_one_in_flight(rig: Rig) -> None:
    rig.train_and_save()
    rig.committer.reports.get(timeout=DEADLINE_S)
    second = threading.Thread(target=rig.train_and_save)
    second.start()
    second.join(0.2)
    assert second.is_alive()  # the first is not published
    assert rig.points.count("save.staged") == 1  # and its buffer is not overwritten
    rig.committer.answers.put(None)
    second.join(DEADLINE_S)
    assert not second.is_alive()
    rig.committer.answers.put(None)
    rig.saver.wait()
    waited = [event["waited_s"] for event in rig.events("save_staged")]
    assert waited[0] < waited[1]
    assert waited[1] >= 0.1
    assert [event["step"] for event in rig.events("save_written")] == [1, 2]


@pytest.mark.parametrize("error", [Fenced(3), Interrupted("the committer is gone"), ValueError("odd")])
def test_what_the_committer_raises_surfaces_at_the_next_boundary_once(rig: Rig, error: Exception) -> None:
    rig.committer.answers.put(error)
    rig.train_and_save()
    with pytest.raises(type(error)):
        rig.train_and_save()
    assert rig.points.count("save.staged") == 1
    rig.saver.wait()
    (abandoned,) = rig.events("save_abandoned")
    assert abandoned["where"].startswith(type(error).__name__)


def test_what_goes_wrong_in_writing_surfaces_too(rig: Rig) -> None:
    with rig.objects.open_bulk("shards/s00000001-a0002-r0000.safetensors"):
        pass
    rig.train_and_save()
    with pytest.raises(AlreadyExists):
        rig.saver.wait()
    assert rig.committer.reports.empty()


def test_an_exception_at_a_point_in_the_background_surfaces(rig: Rig) -> None:
    def strike(point: str) -> None:
        if point == "shard.half":
            raise RuntimeError("struck")

    rig.at = strike
    rig.train_and_save()
    with pytest.raises(RuntimeError, match="struck"):
        rig.saver.wait()


def test_an_abandoned_save_is_not_reported(rig: Rig) -> None:
    held, go_on = threading.Event(), threading.Event()

    def hold(point: str) -> None:
        if point == "ledger.synced":
            held.set()
            go_on.wait(DEADLINE_S)

    rig.at = hold
    rig.train_and_save()
    assert held.wait(DEADLINE_S)
    assert not rig.saver.abandon(0.05)  # its thread still reads the buffer
    go_on.set()
    assert rig.saver.abandon(DEADLINE_S)
    assert rig.committer.reports.empty()
    with pytest.raises(Interrupted, match="abandoned before it was reported"):
        rig.saver.wait()


def test_whoever_waits_is_released_when_the_attempt_is_over(rig: Rig) -> None:
    rig.train_and_save()
    rig.committer.reports.get(timeout=DEADLINE_S)
    threading.Timer(0.05, rig.saver.cancel).start()
    with pytest.raises(Interrupted, match="while a save was awaited"):
        rig.saver.wait()


def test_nothing_in_flight_is_nothing_to_wait_for(rig: Rig) -> None:
    rig.saver.wait()
    assert rig.saver.abandon(0)


def test_a_save_inside_a_step_says_so_everywhere(rig: Rig) -> None:
    step(rig.workload, rig.progress)
    partial = Partial.now(rig.workload, Share(0, 1, 8, 4), 1, 3, 0.5, [np.arange(4), np.arange(4, 6)])
    rig.committer.answers.put(None)
    rig.saver.save(rig.workload, rig.progress, rows(1), 1, 2, partial)
    expected = partial.digests(rig.workload)
    rig.saver.wait()
    report = rig.committer.reports.get(timeout=DEADLINE_S)
    assert report.moment == (2, 1, 3)
    paths = ["shards/s00000001-m0003-a0002-r0000.safetensors", "ledger/s00000001-m0003-a0002-r0000.arrow"]
    assert [file.path for file in report.files] == paths
    assert {part: report.parts[part] for part in expected} == expected
    assert {"gradient/0.weight", "accumulation/sample_ids"} <= report.local.keys()
    metadata = parse_shard((Path(rig.objects.root) / paths[0]).read_bytes(), "x").metadata
    assert (metadata["step"], metadata["microbatch"], metadata["cursor"]) == ("1", "3", "6")
    _rows, meta = decode_segment((Path(rig.objects.root) / paths[1]).read_bytes(), "x")
    assert meta == SegmentMeta("r1", 2, 1, 0, 1, 1, 2, 3)
    (due,), (staged,), (written,) = map(rig.events, ("save_due", "save_staged", "save_written"))
    assert (due["parts"], due["microbatch"], staged["microbatch"], written["microbatch"]) == (expected, 3, 3, 3)
    rig.committer.answers.put(None)
    rig.train_and_save()
    rig.saver.wait()
    assert "microbatch" not in rig.events("save_due")[1]  # the boundary has none


def test_a_workload_without_scheduler_says_so_in_its_shard(tmp_path: Path) -> None:
    rig = Rig(tmp_path, "plain_sgd")
    rig.committer.answers.put(None)
    _tensors, texts = rig.train_and_save()
    rig.saver.wait()
    assert isinstance(rig.workload, Workload)
    assert texts["scheduler"] == texts["scaler"] == "null"
