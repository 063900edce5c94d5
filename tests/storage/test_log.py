from __future__ import annotations

import os
import subprocess
import sys
import threading
from pathlib import Path
from typing import Any

import pytest
from storage_kit import CONFIG, OWNER, RUN, Killed, Points, kill_at, manifest_digest

import storage.log
from storage.entries import entry_body, fence_fields, publish_fields
from storage.errors import AlreadyExists, Fenced, LogBroken, Unavailable
from storage.log import Candidate, Choose, CommitLog, Fence, Parent, Publish, Retire, entry_name
from storage.objects import LocalObjects, Reached, no_point
from storage.sealed import seal

ROOT = Path(storage.log.__file__).parents[1]
A, B = "s00000002-a0000", "s00000004-a0000"
PARENT = Parent(A, manifest_digest(A), 2)
CHOSEN = Candidate(A, manifest_digest(A), 2, "chosen")


def publish(log: CommitLog, name: str, attempt: int = 0) -> Publish:
    return log.publish(attempt, name, manifest_digest(name), int(name[1:9]))


def filled(log: CommitLog) -> None:
    log.fence(CONFIG, OWNER)
    log.choose(0, None, [])
    publish(log, A)
    publish(log, B)
    log.fence(CONFIG, OWNER)
    log.choose(1, PARENT, [Candidate(B, manifest_digest(B), 4, "rejected", "digest"), CHOSEN])
    log.retire(1, [B])


def put(objects: LocalObjects, seq: int, body: Any) -> None:
    objects.create(entry_name(seq), seal(body)[0])


def test_what_is_appended_is_what_another_reads(objects: LocalObjects, log: CommitLog) -> None:
    filled(log)
    entries = CommitLog(objects, RUN).read()
    assert entries == log.read()
    assert [type(entry) for entry in entries] == [Fence, Choose, Publish, Publish, Fence, Choose, Retire]
    assert [entry.seq for entry in entries] == list(range(7))
    assert [entry.attempt for entry in entries] == [0, 0, 0, 0, 1, 1, 1]
    assert [e.previous for e in entries] == [None, *(e.entry_digest for e in entries[:-1])]
    assert isinstance(entries[5], Choose)
    assert entries[5].parent == PARENT
    assert entries[5].candidates[1] == CHOSEN
    assert isinstance(entries[2], Publish)
    assert (entries[2].digest, entries[2].as_parent()) == (manifest_digest(A), PARENT)
    for entry in entries:
        if not isinstance(entry, Publish):
            assert entry.digest == entry.entry_digest


def test_a_fence_ends_the_earlier_attempt(objects: LocalObjects, log: CommitLog) -> None:
    assert log.fence(CONFIG, OWNER).attempt == 0
    assert CommitLog(objects, RUN).fence(CONFIG, OWNER).attempt == 1
    for call in (
        lambda: publish(log, A),
        lambda: log.choose(0, None, []),
        lambda: log.retire(0, [A]),
        lambda: log.require_current(0),
    ):
        with pytest.raises(Fenced) as caught:
            call()
        assert caught.value.by_attempt == 1
    assert len(log.read()) == 2


class Overtaking(LocalObjects):
    """Another writer appends a fence after this one has read the log and before it creates its entry."""

    overtaken = False

    def create(self, name: str, data: bytes, reached: Reached = no_point) -> None:
        if not self.overtaken:
            self.overtaken = True
            CommitLog(LocalObjects(self.root), RUN).fence(CONFIG, OWNER)
        super().create(name, data, reached)


def test_a_fence_that_overtakes_an_append_stops_it(objects: LocalObjects, log: CommitLog) -> None:
    log.fence(CONFIG, OWNER)
    with pytest.raises(Fenced):
        publish(CommitLog(Overtaking(objects.root), RUN), A)
    assert [type(entry) for entry in log.read()] == [Fence, Fence]


def test_a_fence_that_overtakes_a_fence_makes_it_the_next(objects: LocalObjects, log: CommitLog) -> None:
    assert CommitLog(Overtaking(objects.root), RUN).fence(CONFIG, OWNER).attempt == 1


def test_of_concurrent_processes_exactly_one_wins_each_place(tmp_path: Path) -> None:
    code = f"""
import sys; sys.path.insert(0, {str(ROOT)!r})
from pathlib import Path
from storage.log import CommitLog
from storage.objects import LocalObjects
from storage.process import current_process
log = CommitLog(LocalObjects(Path({str(tmp_path)!r})), {RUN!r})
for _ in range(25):
    print(log.fence({CONFIG!r}, current_process()).attempt)
"""
    children = [subprocess.Popen([sys.executable, "-c", code], stdout=subprocess.PIPE) for _ in range(2)]
    won = {child.pid: [int(line) for line in child.communicate()[0].split()] for child in children}
    entries = CommitLog(LocalObjects(tmp_path), RUN).read()
    assert sorted(won[children[0].pid] + won[children[1].pid]) == list(range(50))
    for entry in entries:
        assert isinstance(entry, Fence)
        assert entry.attempt in won[entry.owner.pid]


def test_of_concurrent_threads_exactly_one_wins_each_place(objects: LocalObjects) -> None:
    attempts: list[int] = []

    def work(log: CommitLog) -> None:
        attempts.extend(log.fence(CONFIG, OWNER).attempt for _ in range(10))

    shared = CommitLog(objects, RUN)
    threads = [
        threading.Thread(target=work, args=(log,)) for log in (shared, shared, CommitLog(objects, RUN))
    ]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert sorted(attempts) == list(range(30))
    assert len(CommitLog(objects, RUN).read()) == 30


@pytest.mark.parametrize("seq", range(7))
def test_a_damaged_entry_breaks_the_log_there(objects: LocalObjects, log: CommitLog, seq: int) -> None:
    filled(log)
    path = objects.path(entry_name(seq))
    data = path.read_bytes()
    for at in range(0, len(data), 13):
        path.write_bytes(data[:at] + bytes([data[at] ^ 4]) + data[at + 1 :])
        with pytest.raises(LogBroken, match=entry_name(seq)):
            CommitLog(objects, RUN).read()
        path.write_bytes(data[:at])
        with pytest.raises(LogBroken, match=entry_name(seq)):
            CommitLog(objects, RUN).read()


@pytest.mark.parametrize("seq", range(6))
def test_a_missing_entry_breaks_the_log(objects: LocalObjects, log: CommitLog, seq: int) -> None:
    filled(log)
    objects.remove(entry_name(seq))
    for reader in (log, CommitLog(objects, RUN)):
        with pytest.raises(LogBroken, match=entry_name(seq)):
            reader.read()


def test_an_entry_that_was_read_must_not_vanish(objects: LocalObjects, log: CommitLog) -> None:
    filled(log)
    objects.remove(entry_name(6))
    with pytest.raises(LogBroken, match="gone"):
        log.read()


def test_an_entry_out_of_place_breaks_the_log(objects: LocalObjects, log: CommitLog) -> None:
    filled(log)
    objects.path(entry_name(7)).write_bytes(objects.read(entry_name(6)))
    with pytest.raises(LogBroken, match="is entry 6 under the name of entry 7"):
        log.read()


@pytest.mark.parametrize("name", ["readme", "0000000a.json", "1.json", "00000001.json.bak"])
def test_an_unknown_file_breaks_the_log(objects: LocalObjects, log: CommitLog, name: str) -> None:
    log.fence(CONFIG, OWNER)
    objects.create(f"log/{name}", b"")
    with pytest.raises(LogBroken, match=f"log/{name}"):
        log.read()


def test_another_runs_log_is_refused(objects: LocalObjects, log: CommitLog) -> None:
    log.fence(CONFIG, OWNER)
    with pytest.raises(LogBroken, match="belongs to run 'r1', not to 'r2'"):
        CommitLog(objects, "r2").read()


def test_an_empty_log_beside_manifests_is_broken(objects: LocalObjects, log: CommitLog) -> None:
    assert log.read() == ()
    objects.create("manifests/x.json", b"")
    with pytest.raises(LogBroken, match="manifests"):
        log.fence(CONFIG, OWNER)


@pytest.mark.parametrize(
    ("body", "message"),
    [
        (entry_body(RUN, 1, "P", 2, "fence", fence_fields(CONFIG, OWNER)), "begins attempt 2"),
        (entry_body(RUN, 1, "P", 0, "fence", fence_fields(CONFIG, OWNER)), "begins attempt 0"),
        (entry_body(RUN, 1, "P", 1, "retire", {"names": []}), "no fence before"),
        (entry_body(RUN, 1, None, 0, "retire", {"names": []}), "predecessor"),
        (entry_body(RUN, 1, "sha256:0", 0, "retire", {"names": []}), "predecessor"),
        (entry_body(RUN, 1, "P", 0, "retire", {}), "missing"),
        (entry_body(RUN, 1, "P", 0, "retire", {"names": [1]}), "names"),
        (entry_body(RUN, 1, "P", 0, "retire", {"names": [], "x": 1}), "unknown"),
        (entry_body(RUN, 1, "P", 0, "bless", {"names": []}), "unknown kind"),
        (entry_body(RUN, 1, "P", True, "retire", {"names": []}), "attempt"),
        (entry_body(RUN, 1, "P", -1, "retire", {"names": []}), "attempt"),
        (entry_body(RUN, 1, "P", 0, "publish", publish_fields(A, "xxh3-128:0", 2)), "digest"),
        (entry_body(RUN, 1, "P", 0, "publish", publish_fields("", manifest_digest(A), 2)), "name"),
        (entry_body(RUN, 1, "P", 0, "choose", {"parent": 1, "candidates": []}), "object"),
        (entry_body(RUN, 1, "P", 0, "choose", {"parent": None, "candidates": {}}), "list"),
        ({**entry_body(RUN, 1, "P", 0, "retire", {"names": []}), "format": "killpoint.log/2"}, "format"),
    ],
)
def test_a_sealed_entry_of_the_wrong_form_breaks_the_log(
    objects: LocalObjects, log: CommitLog, body: Any, message: str
) -> None:
    first = log.fence(CONFIG, OWNER)
    if body["previous"] == "P":
        body = {**body, "previous": first.entry_digest}
    put(objects, 1, body)
    with pytest.raises(LogBroken, match=message) as caught:
        log.read()
    assert caught.value.where.startswith(entry_name(1))


@pytest.mark.parametrize("wrong", [{"status": "maybe"}, {"reason": None}])
def test_a_candidate_of_the_wrong_form_breaks_the_log(
    objects: LocalObjects, log: CommitLog, wrong: dict[str, Any]
) -> None:
    first = log.fence(CONFIG, OWNER)
    candidate = {"name": A, "digest": manifest_digest(A), "step": 2, "status": "rejected", "reason": ""}
    own = {"parent": None, "candidates": [{**candidate, **wrong}]}
    put(objects, 1, entry_body(RUN, 1, first.entry_digest, 0, "choose", own))
    with pytest.raises(LogBroken, match=next(iter(wrong))):
        log.read()


def test_an_entry_by_a_fenced_attempt_stays_readable(objects: LocalObjects, log: CommitLog) -> None:
    log.fence(CONFIG, OWNER)
    last = log.fence(CONFIG, OWNER)
    own = publish_fields(A, manifest_digest(A), 2)
    put(objects, 2, entry_body(RUN, 2, last.entry_digest, 0, "publish", own))
    assert isinstance(log.read()[2], Publish)


def test_publishing_and_choosing_again_is_the_same_entry(log: CommitLog) -> None:
    filled(log)
    before = log.read()
    again = log.choose(1, PARENT, [Candidate(B, manifest_digest(B), 4, "rejected", "digest"), CHOSEN])
    assert again == before[5]
    assert publish(log, A) == before[2]
    assert log.read() == before


def test_publishing_or_choosing_otherwise_is_refused(log: CommitLog) -> None:
    log.fence(CONFIG, OWNER)
    publish(log, A)
    with pytest.raises(ValueError, match="already published"):
        log.publish(0, A, manifest_digest(B), 2)
    log.choose(0, None, [])
    with pytest.raises(ValueError, match="another choice"):
        log.choose(0, PARENT, [CHOSEN])


def test_what_was_never_there_cannot_be_named(log: CommitLog) -> None:
    with pytest.raises(ValueError, match="never begun"):
        publish(log, A)
    log.fence(CONFIG, OWNER)
    with pytest.raises(ValueError, match="never published"):
        log.choose(0, PARENT, [CHOSEN])
    with pytest.raises(ValueError, match="marked chosen"):
        log.choose(0, PARENT, [])
    with pytest.raises(ValueError, match="read back"):
        log.publish(0, A, "xxh3-128:0", 2)
    assert len(log.read()) == 1


def test_points_are_passed_and_a_kill_between_leaves_nothing_or_all(objects: LocalObjects) -> None:
    points = Points()
    CommitLog(objects, RUN, points).fence(CONFIG, OWNER)
    before = ["log.before_create", "log.before_write", "log.before_sync", "log.before_link"]
    assert points.passed == [*before, "log.after_link", "log.after_unlink"]
    for point in before:
        with pytest.raises(Killed):
            publish(CommitLog(objects, RUN, kill_at(point)), A)
        assert len(CommitLog(objects, RUN).read()) == 1
    for number, point in enumerate(("log.after_link", "log.after_unlink")):
        with pytest.raises(Killed):
            publish(CommitLog(objects, RUN, kill_at(point)), (A, "s00000009-a0000")[number])
        assert len(CommitLog(objects, RUN).read()) == 2 + number


def test_an_append_of_open_outcome_can_be_made_again(
    objects: LocalObjects, log: CommitLog, monkeypatch: pytest.MonkeyPatch
) -> None:
    log.fence(CONFIG, OWNER)
    link = os.link

    def linked_but_reported_lost(*args: Any, **kwargs: Any) -> None:
        link(*args, **kwargs)
        raise OSError(5, "Input/output error")

    monkeypatch.setattr("storage.objects.os.link", linked_but_reported_lost)
    with pytest.raises(Unavailable):
        publish(log, A)
    monkeypatch.undo()
    assert publish(log, A).seq == 1
    assert len(log.read()) == 2


def test_a_listing_that_hides_the_entry_in_the_way_is_unavailable(objects: LocalObjects) -> None:
    class Hiding(LocalObjects):
        def create(self, name: str, data: bytes, reached: Reached = no_point) -> None:
            raise AlreadyExists(name)

    with pytest.raises(Unavailable, match="listing"):
        CommitLog(Hiding(objects.root), RUN).fence(CONFIG, OWNER)


def test_entries_are_read_once(
    objects: LocalObjects, log: CommitLog, monkeypatch: pytest.MonkeyPatch
) -> None:
    filled(log)
    reader = CommitLog(objects, RUN)
    reader.read()
    publish(log, "s00000009-a0001", 1)
    names: list[str] = []
    read = LocalObjects.read

    def noted(self: LocalObjects, name: str) -> bytes:
        names.append(name)
        return read(self, name)

    monkeypatch.setattr(LocalObjects, "read", noted)
    assert len(reader.read()) == 8
    assert names == [entry_name(7)]
