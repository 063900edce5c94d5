from __future__ import annotations

from collections.abc import Sequence

import pytest
from hypothesis import given
from hypothesis import strategies as st
from storage_kit import CONFIG, OWNER, Killed, Points, draft, kill_at
from test_selection import Log, first, n, short

from storage.commit import commit_checkpoint
from storage.errors import Fenced
from storage.log import Candidate, CommitLog, Retire
from storage.objects import LocalObjects
from storage.retention import Retirement, leftovers, retire, to_retire
from storage.selection import candidates, current_lineage, lineage, published, retired

ALL = {n(f"{step}/{attempt}") for step in range(20) for attempt in range(4)}


def test_the_newest_of_the_lineage_stay() -> None:
    assert to_retire(first().entries, 2, ALL) == (n("2/0"),)
    assert to_retire(first().entries, 3, ALL) == ()
    assert to_retire(first().p(8).entries, 2, ALL) == (n("2/0"), n("4/0"))


def test_fewer_than_two_cannot_be_kept() -> None:
    for keep in (1, 0, -1):
        with pytest.raises(ValueError, match="at least 2"):
            to_retire(first().entries, keep, ALL)


def test_only_those_that_verify_count() -> None:
    assert to_retire(first().p(8).entries, 2, ALL - {n("8/0")}) == (n("2/0"),)
    assert to_retire(first().p(8).entries, 2, ALL - {n("4/0"), n("6/0")}) == ()
    assert to_retire(first().p(8).entries, 2, set()) == ()


def test_those_left_behind_go_too_once_there_is_a_way_back() -> None:
    log = first().f().c(n("4/0"))
    assert to_retire(log.entries, 2, ALL) == (n("6/0"),)
    assert to_retire(log.entries, 3, ALL) == ()
    assert to_retire(log.p(5).entries, 2, ALL) == (n("2/0"), n("6/0"))


def test_nothing_goes_while_the_latest_attempt_has_not_chosen() -> None:
    assert to_retire(first().f().entries, 2, ALL) == ()
    assert to_retire([], 2, ALL) == ()


def test_retired_ones_are_neither_named_again_nor_counted() -> None:
    log = first().p(8).r(n("2/0"))
    assert to_retire(log.entries, 2, ALL) == (n("4/0"),)
    assert to_retire(first().r(n("4/0")).entries, 2, ALL) == ()


@given(st.data())
def test_there_is_always_a_way_back(data: st.DataObject) -> None:
    log = Log()
    for attempt in range(data.draw(st.integers(1, 4))):
        open_to = candidates(log.f().entries, attempt)
        chosen = data.draw(st.sampled_from(open_to)).name if open_to else None
        log.c(chosen).p(*range(10 * attempt, 10 * attempt + data.draw(st.integers(0, 4))))
    everything = [publish.name for publish in published(log.entries)]
    verified = data.draw(st.sets(st.sampled_from(everything))) if everything else set()
    keep = data.draw(st.integers(2, 4))
    gone = set(to_retire(log.entries, keep, verified))
    line = [publish.name for publish in current_lineage(log.entries) or ()]
    good = [name for name in line if name in verified]
    assert gone.isdisjoint(line[:2])
    assert gone.isdisjoint(good[:keep])
    if gone:
        assert len(good) >= keep
        after = log.r(*gone).f()
        left = [publish.name for publish in candidates(after.entries, after.attempt)]
        assert [name for name in left if name in verified] == good[: len([x for x in good if x not in gone])]


def test_leftovers_are_retired_ones_that_still_have_a_shard() -> None:
    entries = first().r(n("2/0"), n("4/0")).entries
    files = [
        f"{n('2/0')}-r0001.safetensors",
        f"{n('6/0')}-r0000.safetensors",
        f"{n('4/0')}-r0000.bak",
        "readme",
    ]
    assert leftovers(entries, files) == (n("2/0"),)


def test_those_inside_a_step_are_told_from_those_at_its_end() -> None:
    within = "s00000002-m0003-a0000"
    entries = first().r(n("2/0")).entries
    assert leftovers(entries, [f"{within}-r0000.safetensors"]) == ()
    assert leftovers(first().r(within).entries, [f"{within}-r0000.safetensors"]) == (within,)
    assert leftovers(first().r(within).entries, [f"{n('2/0')}-r0000.safetensors"]) == ()


def stored(objects: LocalObjects, log: CommitLog, steps: Sequence[int] = (2, 4, 6, 8)) -> None:
    log.fence(CONFIG, OWNER)
    log.choose(0, None, [])
    for step in steps:
        commit_checkpoint(objects, log, draft(objects, step))


def shards(*steps: int) -> list[str]:
    return [f"{n(f'{step}/0')}-r{rank:04d}.safetensors" for step in steps for rank in range(2)]


def test_only_shards_go_and_only_after_the_entry(objects: LocalObjects, log: CommitLog) -> None:
    stored(objects, log)
    before = {folder: objects.list(folder) for folder in ("manifests", "ledger")}
    points = Points()
    done = retire(objects, log, 0, to_retire(log.read(), 2, ALL), points)
    assert done.removed == tuple(f"shards/{name}" for name in shards(2, 4))
    assert (log.read()[-1].seq, type(log.read()[-1])) == (done.seq, Retire)
    assert objects.list("shards") == shards(6, 8)
    assert {folder: objects.list(folder) for folder in before} == before
    each = ["retire.after_unlink", "retire.between"]
    assert points.passed == ["retire.before", "retire.logged", "retire.listed", *each * 4, "retire.after"]
    assert [entry.names for entry in log.read() if isinstance(entry, Retire)] == [(n("2/0"), n("4/0"))]


@pytest.mark.parametrize(
    ("point", "logged", "left"),
    [
        ("retire.before", False, shards(2, 4, 6)),
        ("retire.logged", True, shards(2, 4, 6)),
        ("retire.listed", True, shards(2, 4, 6)),
        ("retire.after_unlink", True, shards(2, 4, 6)[1:]),
        ("retire.between", True, shards(2, 4, 6)[1:]),
        ("retire.after", True, shards(4, 6)),
    ],
)
def test_killed_at_any_point_it_is_finished_by_the_same_call(
    objects: LocalObjects, log: CommitLog, point: str, logged: bool, left: list[str]
) -> None:
    stored(objects, log, (2, 4, 6))
    with pytest.raises(Killed):
        retire(objects, log, 0, [n("2/0")], kill_at(point))
    assert objects.list("shards") == left
    assert (n("2/0") in retired(log.read())) == logged
    if logged:
        again = leftovers(log.read(), objects.list("shards"))
        assert again == ((n("2/0"),) if left != shards(4, 6) else ())
        assert retire(objects, log, 0, again).seq is None
        assert objects.list("shards") == shards(4, 6)
        assert sum(isinstance(entry, Retire) for entry in log.read()) == 1


def test_the_way_back_cannot_be_retired(objects: LocalObjects, log: CommitLog) -> None:
    stored(objects, log)
    for name in (n("8/0"), n("6/0")):
        with pytest.raises(ValueError, match="newest two"):
            retire(objects, log, 0, [n("2/0"), name])
    with pytest.raises(ValueError, match="not a published"):
        retire(objects, log, 0, [n("3/0")])
    log.fence(CONFIG, OWNER)
    with pytest.raises(ValueError, match="has chosen"):
        retire(objects, log, 1, [n("2/0")])
    assert objects.list("shards") == shards(2, 4, 6, 8)


def test_a_fenced_attempt_removes_nothing(objects: LocalObjects, log: CommitLog) -> None:
    stored(objects, log)
    CommitLog(objects, log.run).fence(CONFIG, OWNER)
    with pytest.raises(Fenced):
        retire(objects, log, 0, [n("2/0")])
    assert objects.list("shards") == shards(2, 4, 6, 8)


def test_a_branch_left_behind_is_removed(objects: LocalObjects, log: CommitLog) -> None:
    stored(objects, log)
    entry = published(log.read())[1]
    log.fence(CONFIG, OWNER)
    log.choose(1, entry.as_parent(), [Candidate(entry.name, entry.digest, entry.step, "chosen")])
    assert short(current_lineage(log.read()) or ()) == ["4/0", "2/0"]
    retire(objects, log, 1, to_retire(log.read(), 2, ALL))
    assert objects.list("shards") == shards(2, 4)
    assert short(lineage(log.read(), entry)) == ["4/0", "2/0"]


def test_no_names_no_entry(objects: LocalObjects, log: CommitLog) -> None:
    stored(objects, log)
    before = log.read()
    assert retire(objects, log, 0, []) == Retirement(None, ())
    assert log.read() == before
