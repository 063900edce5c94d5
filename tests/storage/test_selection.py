from __future__ import annotations

from collections.abc import Sequence

import pytest
from hypothesis import given
from hypothesis import strategies as st
from storage_kit import CONFIG, OWNER, manifest_digest

from storage.entries import Choose, Entry, Fence, Parent, Publish, Retire
from storage.errors import LogBroken, NoCandidate
from storage.manifest import checkpoint_name
from storage.selection import (
    candidates,
    current_lineage,
    decide,
    ever_published,
    lineage,
    published,
    retired,
)


class Log:
    """A log written by hand: f() fences, p(step) publishes, c(name) chooses, r(name) retires."""

    def __init__(self) -> None:
        self.entries: list[Entry] = []
        self.attempt = -1

    def _place(self, attempt: int | None) -> tuple[int, str | None, str, int]:
        return len(self.entries), None, "sha256:e", self.attempt if attempt is None else attempt

    def f(self) -> Log:
        self.attempt += 1
        self.entries.append(Fence(*self._place(None), CONFIG, OWNER))
        return self

    def p(self, *steps: int, attempt: int | None = None) -> Log:
        for step in steps:
            place = self._place(attempt)
            name = checkpoint_name(step, place[3])
            self.entries.append(Publish(*place, name, manifest_digest(name), step))
        return self

    def c(self, name: str | None, attempt: int | None = None) -> Log:
        parent = None if name is None else Parent(name, manifest_digest(name), int(name[1:9]))
        self.entries.append(Choose(*self._place(attempt), parent, ()))
        return self

    def r(self, *names: str, attempt: int | None = None) -> Log:
        self.entries.append(Retire(*self._place(attempt), names))
        return self


def short(found: Sequence[Publish]) -> list[str]:
    """7/0 for the checkpoint of step 7 of attempt 0."""
    return [f"{publish.step}/{publish.attempt}" for publish in found]


def n(place: str) -> str:
    step, attempt = place.split("/")
    return checkpoint_name(int(step), int(attempt))


def first() -> Log:
    return Log().f().c(None).p(2, 4, 6)


def test_attempt_0_has_none() -> None:
    assert candidates(Log().f().entries, 0) == ()
    assert candidates([], 0) == candidates([], 1) == ()


def test_what_the_last_attempt_published_newest_first() -> None:
    assert short(candidates(first().f().entries, 1)) == ["6/0", "4/0", "2/0"]


def test_newest_is_the_logs_order_not_the_steps() -> None:
    log = Log().f().c(None).p(900, 1000, 3).f()
    assert short(candidates(log.entries, 1)) == ["3/0", "1000/0", "900/0"]


def test_then_the_chosen_and_what_lay_behind_it() -> None:
    log = first().f().c(n("4/0")).p(6, 8).f()
    assert short(candidates(log.entries, 2)) == ["8/1", "6/1", "4/0", "2/0"]


def test_a_branch_left_behind_never_returns() -> None:
    log = first().f().c(n("4/0")).p(6, 8).f().c(n("2/0")).f()
    assert short(candidates(log.entries, 3)) == ["2/0"]
    log.c(n("2/0")).p(3).f()
    assert short(candidates(log.entries, 4)) == ["3/3", "2/0"]


def test_an_attempt_that_never_chose_leaves_its_own_candidates() -> None:
    log = first().f().f().f()
    assert candidates(log.entries, 3) == candidates(log.entries, 2) == candidates(log.entries, 1)
    log = first().f().c(n("4/0")).p(6).f().f()
    assert short(candidates(log.entries, 3)) == ["6/1", "4/0", "2/0"]


def test_an_attempt_that_chose_a_fresh_start_has_nothing_behind_it() -> None:
    assert short(candidates(first().f().c(None).p(1).f().entries, 2)) == ["1/1"]
    assert candidates(first().f().c(None).f().entries, 2) == ()


def test_an_attempt_0_that_recorded_no_choice_started_from_nothing() -> None:
    log = Log().f().p(2, 4).f()
    assert short(candidates(log.entries, 1)) == ["4/0", "2/0"]
    log.c(n("2/0")).p(3)
    assert short(lineage(log.entries, published(log.entries)[-1])) == ["3/1", "2/0"]


def test_a_later_attempt_that_recorded_no_choice_published_nothing_that_counts() -> None:
    log = first().f().p(9).f()
    assert short(candidates(log.entries, 2)) == ["6/0", "4/0", "2/0"]
    with pytest.raises(LogBroken, match="attempt 1, which never recorded"):
        lineage(log.entries, published(log.entries)[-1])


def test_what_a_fenced_attempt_appends_has_no_effect() -> None:
    log = first().f().p(8, attempt=0).c(n("2/0"), attempt=0).r(n("6/0"), attempt=0)
    assert short(candidates(log.entries, 1)) == ["6/0", "4/0", "2/0"]
    assert short(published(log.entries)) == ["2/0", "4/0", "6/0"]
    assert retired(log.entries) == frozenset()
    assert ever_published(log.entries)


def test_retired_ones_are_left_out_but_belong_to_the_lineage() -> None:
    log = first().r(n("2/0"), n("4/0")).f()
    assert short(candidates(log.entries, 1)) == ["6/0"]
    assert retired(log.entries) == {n("2/0"), n("4/0")}
    assert short(lineage(log.entries, published(log.entries)[-1])) == ["6/0", "4/0", "2/0"]


def test_what_is_appended_after_the_fence_does_not_change_an_attempts_candidates() -> None:
    log = first().f()
    before = candidates(log.entries, 1)
    log.c(n("6/0")).p(7, 8).r(n("2/0")).f()
    assert candidates(log.entries, 1) == before
    assert short(candidates(log.entries, 2)) == ["8/1", "7/1", "6/0", "4/0"]


def test_the_lineage_of_an_older_one_leaves_out_what_came_later() -> None:
    log = first().f().c(n("4/0")).p(6, 8)
    assert short(lineage(log.entries, published(log.entries)[3])) == ["6/1", "4/0", "2/0"]
    assert short(lineage(log.entries, published(log.entries)[1])) == ["4/0", "2/0"]


def test_the_current_lineage() -> None:
    assert current_lineage([]) is None
    assert current_lineage(Log().f().entries) == ()
    log = first().f()
    assert current_lineage(log.entries) is None
    assert short(current_lineage(log.c(n("4/0")).entries) or ()) == ["4/0", "2/0"]
    assert short(current_lineage(log.p(5).entries) or ()) == ["5/1", "4/0", "2/0"]


def test_a_parent_that_nobody_published_breaks_the_log() -> None:
    with pytest.raises(LogBroken, match="entry 6: names s00000005-a0000"):
        candidates(Log().f().c(None).p(2, 4, 6).f().c(n("5/0")).f().entries, 2)


def test_a_parent_of_the_same_or_a_later_attempt_breaks_the_log() -> None:
    log = first().f().p(8).c(n("8/1")).f()
    with pytest.raises(LogBroken, match="no earlier attempt"):
        candidates(log.entries, 2)


def test_the_right_name_with_another_digest_breaks_the_log() -> None:
    log = first().f()
    log.entries.append(Choose(6, None, "sha256:e", 1, Parent(n("4/0"), manifest_digest("other"), 4), ()))
    with pytest.raises(LogBroken, match="with this digest"):
        candidates(log.entries, 2)


def test_ever_published() -> None:
    assert not ever_published(Log().f().c(None).entries)
    assert ever_published(first().entries)


def test_decide_asks_for_the_newest_first_and_stops_at_the_first_that_verifies() -> None:
    found = candidates(first().f().entries, 1)
    decision = decide(found, {})
    assert (decision.examine, decision.chosen, decision.parent) == (found[0], None, None)
    decision = decide(found, {n("6/0"): "cut off"})
    assert decision.examine == found[1]
    decision = decide(found, {n("6/0"): "cut off", n("4/0"): None})
    assert (decision.examine, decision.chosen) == (None, found[1])
    assert decision.parent == Parent(n("4/0"), manifest_digest(n("4/0")), 4)
    assert [(c.name, c.step, c.status, c.reason) for c in decision.candidates] == [
        (n("6/0"), 6, "rejected", "cut off"),
        (n("4/0"), 4, "chosen", ""),
        (n("2/0"), 2, "not_examined", ""),
    ]


def test_decide_does_not_skip_one_without_a_verdict() -> None:
    found = candidates(first().f().entries, 1)
    decision = decide(found, {n("4/0"): None})
    assert (decision.examine, decision.chosen) == (found[0], None)
    assert {c.status for c in decision.candidates} == {"not_examined"}


def test_with_none_left_it_stops() -> None:
    found = candidates(first().f().entries, 1)
    with pytest.raises(NoCandidate, match="s00000004-a0000: gone") as caught:
        decide(found, {n("6/0"): "cut", n("4/0"): "gone", n("2/0"): "cut"})
    assert len(caught.value.reasons) == 3


def test_with_none_at_all_it_is_a_fresh_start() -> None:
    decision = decide((), {})
    assert (decision.examine, decision.chosen, decision.parent, decision.candidates) == (None, None, None, ())


@given(st.data())
def test_agrees_with_a_reference_that_carries_the_line_along(data: st.DataObject) -> None:
    """The reference never looks back: it holds the line of the live state while the log is being written."""
    log = Log()
    line: list[str] = []  # newest first
    line_of: dict[str, list[str]] = {}
    gone: set[str] = set()
    expected = []
    step = 0
    for attempt in range(data.draw(st.integers(1, 6))):
        open_to = [place for place in line if place not in gone]
        log.f()
        expected.append(open_to if attempt else [])
        if attempt and data.draw(st.booleans(), label="a zombie publishes"):
            log.p(9000 + attempt, attempt=attempt - 1)
        if attempt and not data.draw(st.booleans(), label="chooses"):
            continue
        chosen = data.draw(st.sampled_from(open_to)) if open_to else None
        log.c(None if chosen is None else n(chosen))
        line = line_of[chosen] if chosen else []
        for _ in range(data.draw(st.integers(0, 3), label="publications")):
            step += 1
            line = [f"{step}/{attempt}", *line]
            line_of[line[0]] = line
            log.p(step)
        for place in line[2:]:
            if place not in gone and data.draw(st.booleans(), label="retires"):
                gone.add(place)
                log.r(n(place))
    assert [short(candidates(log.entries, k)) for k in range(len(expected))] == expected
    after = [place for place in line if place not in gone]
    assert short(candidates(log.entries, len(expected))) == after
    for publish in published(log.entries):
        assert short(lineage(log.entries, publish)) == line_of[f"{publish.step}/{publish.attempt}"]


def test_every_candidate_is_listed_while_a_verdict_is_awaited() -> None:
    found = candidates(first().f().entries, 1)
    so_far = decide(found, {n("6/0"): "is torn"})
    assert so_far.examine == found[1]
    assert [(c.name, c.status) for c in so_far.candidates] == [
        (n("6/0"), "rejected"), (n("4/0"), "not_examined"), (n("2/0"), "not_examined"),
    ]  # fmt: skip


def test_what_stands_before_the_first_fence_has_no_effect() -> None:
    log = Log().p(2, attempt=0).f()
    assert published(log.entries) == ()
    assert candidates(log.f().entries, 1) == ()


def test_what_later_attempts_published_is_no_candidate_of_one_whose_fence_is_not_there() -> None:
    log = first()
    log.attempt = 1
    log.f().c(None).p(9)
    assert short(candidates(log.entries, 1)) == ["6/0", "4/0", "2/0"]
    assert short(candidates(log.entries, 3)) == ["9/2"]
