"""The log entry by entry beside the log read anew at each entry, on logs of any kind."""

from __future__ import annotations

from hypothesis import given, settings
from hypothesis import strategies as st
from judging import Judge
from simulated_run import Simulation

from chaos.audit.evidence import Choose, Entry, Fence, Publish, Ref, Retire
from chaos.audit.facts import Process
from chaos.audit.logbook import (
    Growth,
    ancestry,
    attempts,
    candidates,
    handed_on,
    lineage,
    publications,
    retired,
    started_from,
)

_OWNER = Process(1, 1, "h")


@st.composite
def logs(draw: st.DrawFn) -> list[Entry]:
    """Fences in and out of turn, choices of anything that was published, publications by whoever."""
    entries: list[Entry] = []
    refs: list[Ref | None] = [None, Ref("s9", "d9", 9)]
    attempt = -1
    for seq in range(draw(st.integers(0, 14))):
        kind = draw(st.sampled_from(["fence", "fence", "choose", "publish", "publish", "publish"]))
        if kind == "fence":
            attempt = draw(st.sampled_from([attempt + 1, attempt + 1, max(0, attempt), 0]))
            entries.append(Fence(seq, attempt, "c", _OWNER))
            continue
        of = max(0, draw(st.sampled_from([attempt, attempt, attempt, attempt - 1])))
        if kind == "choose":
            entries.append(Choose(seq, of, draw(st.sampled_from(refs)), ()))
        else:
            step = draw(st.integers(1, 3))
            publish = Publish(seq, of, f"s{step}", f"d{draw(st.integers(1, 2))}", step)
            entries.append(publish)
            refs.append(publish.ref)
    return entries


@settings(max_examples=150, deadline=None)
@given(logs())
def test_each_prefix_has_the_lineage_that_it_has_alone(entries: list[Entry]) -> None:
    growth = Growth()
    for end, entry in enumerate(entries, 1):
        growth.add(entry)
        known = entries[:end]
        assert tuple(growth.lineage()) == lineage(known)
        assert growth.names == {publish.name for publish in publications(known)}
        for publish in publications(known):
            assert (publish, *growth.before(publish)) == ancestry(known, publish)


A, B, C = (Ref(f"s{n}", f"d{n}", n) for n in (1, 2, 3))


def published(seq: int, attempt: int, ref: Ref) -> Publish:
    return Publish(seq, attempt, ref.name, ref.digest, ref.step)


def test_another_supervisor_begins_the_next_attempt() -> None:
    log = [Fence(0, 0, "c", _OWNER), Fence(1, 1, "c", _OWNER), Fence(2, 2, "c", Process(2, 1, "h"))]
    assert [handed_on(log, attempt) for attempt in (-1, 0, 1, 2, 3)] == [False, False, True, False, False]


def test_what_counts_of_an_attempt_is_its_first_choice_and_what_came_before_the_next_fence() -> None:
    log = [
        Fence(0, 0, "c", _OWNER), Choose(1, 0, None, ()), published(2, 0, A), published(3, 0, B),
        Fence(4, 1, "c", _OWNER), published(5, 0, C), Choose(6, 1, A, ()), Choose(7, 1, B, ()), published(8, 1, C),
        Retire(9, 1, ("s1", "s2")), Retire(10, 1, ("s1",)),
    ]  # fmt: skip
    first, second = attempts(log).values()
    assert (first.number, first.fence.seq, first.choose) == (0, 0, log[1])
    assert [entry.seq for entry in first.published] == [2, 3]
    assert (second.choose, second.chooses) == (log[6], (log[6], log[7]))
    assert [entry.seq for entry in publications(log)] == [2, 3, 8]
    assert {name: entry.seq for name, entry in retired(log).items()} == {"s1": 9, "s2": 9}
    assert started_from(log, 1) == log[2]
    assert (started_from(log, 0), started_from(log, 7)) == (None, None)
    assert [entry.seq for entry in lineage(log)] == [8, 2]


def test_a_first_attempt_need_not_choose_to_leave_candidates() -> None:
    log = [Fence(0, 0, "c", _OWNER), published(1, 0, A), published(2, 0, B), Fence(3, 1, "c", _OWNER)]
    assert [entry.seq for entry in candidates(log, 1)] == [2, 1]


def test_the_lineage_of_an_attempt_that_only_chose_is_that_of_its_choice() -> None:
    log = [Fence(0, 0, "c", _OWNER), published(1, 0, A), published(2, 0, B), Fence(3, 1, "c", _OWNER)]
    assert [entry.seq for entry in lineage([*log, Choose(4, 1, A, ())])] == [1]


def test_the_first_of_several_lost_entries_is_told(run: Simulation, judged: Judge) -> None:
    first, second = sorted((run.folder / "store/log").iterdir())[-2:]
    first.unlink()
    second.unlink()
    judged(run.folder, 3, "unknown", f"the commit log is not whole (store/log/{first.name} is missing")
