from __future__ import annotations

from dataclasses import replace

import pytest
from storage_kit import CONFIG, OWNER, Killed, Points, draft, kill_at

from storage.commit import commit_checkpoint
from storage.errors import Damaged, Fenced, NotThere, Unavailable
from storage.log import CommitLog, Publish
from storage.manifest import decode, encode, manifest_path
from storage.objects import LocalObjects
from storage.shard import read_verified

POINTS = (
    "commit.read_back", "manifest.before_write", "manifest.before_sync", "manifest.before_link", "manifest.after_link",
    "manifest.after_unlink", "manifest.written", "publish.before", "publish.after",
)  # fmt: skip


def test_a_checkpoint_is_published_by_its_manifests_digest(objects: LocalObjects, log: CommitLog) -> None:
    log.fence(CONFIG, OWNER)
    made = draft(objects, 7)
    points = Points()
    digests: list[str] = []
    entry = commit_checkpoint(objects, log, made, points, digests.append)
    assert points.passed == list(POINTS)
    assert log.read()[-1] == entry
    assert (entry.name, entry.step, entry.attempt) == (made.name, 7, 0)
    assert decode(objects.read(manifest_path(made.name)), "x") == (made, entry.digest)
    assert digests == [entry.digest]


@pytest.mark.parametrize("point", POINTS)
def test_killed_at_any_point_it_is_published_whole_or_not_at_all(
    objects: LocalObjects, log: CommitLog, point: str
) -> None:
    log.fence(CONFIG, OWNER)
    made = draft(objects, 7)
    with pytest.raises(Killed):
        commit_checkpoint(objects, log, made, kill_at(point))
    published = [entry for entry in log.read() if isinstance(entry, Publish)]
    assert len(published) == (point == "publish.after")
    for entry in published:
        manifest, digest = decode(objects.read(manifest_path(entry.name)), "x")
        assert digest == entry.digest
        for record in manifest.files:
            read_verified(objects, record)


@pytest.mark.parametrize("index", range(4))
def test_a_file_that_does_not_verify_is_never_published(
    objects: LocalObjects, log: CommitLog, index: int
) -> None:
    log.fence(CONFIG, OWNER)
    made = draft(objects, 7)
    path = objects.path(made.files[index].path)
    data = bytearray(path.read_bytes())
    data[-1] ^= 1
    path.write_bytes(data)
    with pytest.raises(Damaged, match=path.name):
        commit_checkpoint(objects, log, made)
    path.unlink()
    with pytest.raises(NotThere, match=path.name):
        commit_checkpoint(objects, log, made)
    assert len(log.read()) == 1
    assert objects.list("manifests") == []


def test_a_fenced_writer_cannot_publish(objects: LocalObjects, log: CommitLog) -> None:
    log.fence(CONFIG, OWNER)
    made = draft(objects, 7)
    other = CommitLog(LocalObjects(objects.root), log.run)

    def fence_at_the_last_moment(point: str) -> None:
        if point == "publish.before":
            other.fence(CONFIG, OWNER)

    with pytest.raises(Fenced):
        commit_checkpoint(objects, log, made, fence_at_the_last_moment)
    assert not any(isinstance(entry, Publish) for entry in other.read())
    points = Points()
    with pytest.raises(Fenced):
        commit_checkpoint(objects, log, made, points)
    assert points.passed == []


def test_a_commit_of_open_outcome_can_be_made_again(
    objects: LocalObjects, log: CommitLog, monkeypatch: pytest.MonkeyPatch
) -> None:
    log.fence(CONFIG, OWNER)
    made = draft(objects, 7)
    for point in ("manifest.written", "publish.after"):

        def hiccup(name: str, at: str = point) -> None:
            if name == at:
                raise Unavailable("store", "hiccup")

        with pytest.raises(Unavailable):
            commit_checkpoint(objects, log, made, hiccup)
    assert commit_checkpoint(objects, log, made).seq == 1
    assert len(log.read()) == 2


def test_another_manifest_under_the_name_is_not_overwritten(objects: LocalObjects, log: CommitLog) -> None:
    log.fence(CONFIG, OWNER)
    made = draft(objects, 7)
    objects.create(manifest_path(made.name), encode(replace(made, cursor=1))[0])
    with pytest.raises(ValueError, match="other content"):
        commit_checkpoint(objects, log, made)
    assert len(log.read()) == 1


def test_another_runs_draft_and_an_incomplete_one_are_refused(objects: LocalObjects, log: CommitLog) -> None:
    log.fence(CONFIG, OWNER)
    made = draft(objects, 7)
    with pytest.raises(ValueError, match="belongs to run r2"):
        commit_checkpoint(objects, log, replace(made, run="r2"))
    with pytest.raises(ValueError, match="incomplete"):
        commit_checkpoint(objects, log, replace(made, files=made.files[1:]))
