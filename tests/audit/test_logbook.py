"""The log entry by entry beside the log read anew at each entry, on logs of any kind."""

from __future__ import annotations

from collections.abc import Sequence

from hypothesis import given, settings
from hypothesis import strategies as st
from judging import Judge
from simulated_run import Simulation

from chaos.audit.events import Chosen, Event, Fenced, Published, Retired
from chaos.audit.evidence import (
    Choose,
    Dataset,
    Entry,
    Evidence,
    Fence,
    History,
    Log,
    Problem,
    Publish,
    Ref,
    Retire,
    Store,
)
from chaos.audit.facts import Process
from chaos.audit.logbook import (
    Growth,
    ancestry,
    attempts,
    candidates,
    handed_on,
    in_force,
    lineage,
    lost_entries,
    publications,
    retired,
    started_from,
    unusable,
)

_OWNER = Process(1, 1, "h")


@st.composite
def logs(draw: st.DrawFn) -> list[Entry]:
    """Fences in and out of turn, choices of anything that was published, publications by whoever."""
    entries: list[Entry] = []
    refs: list[Ref | None] = [None, Ref("s9", "d9", 9)]
    attempt = -1
    for seq in range(draw(st.integers(0, 14))):
        kind = draw(st.sampled_from(["fence", "fence", "choose", "publish", "publish", "publish", "retire"]))
        if kind == "fence":
            attempt = draw(st.sampled_from([attempt + 1, attempt + 1, max(0, attempt), 0]))
            entries.append(Fence(seq, attempt, "c", _OWNER))
            continue
        of = max(0, draw(st.sampled_from([attempt, attempt, attempt, attempt - 1])))
        if kind == "choose":
            entries.append(Choose(seq, of, draw(st.sampled_from(refs)), ()))
        elif kind == "retire":
            entries.append(Retire(seq, of, tuple(draw(st.sets(st.sampled_from(["s1", "s2", "s3"]))))))
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


class Slow:
    """The log by loops over lists: an entry counts if its attempt is the greatest that was fenced until then."""

    def __init__(self, entries: Sequence[Entry]) -> None:
        self.effective: list[Entry] = []
        for place, entry in enumerate(entries):
            fenced = [before.attempt for before in entries[: place + 1] if isinstance(before, Fence)]
            if fenced and entry.attempt == max(fenced):
                self.effective.append(entry)
        self.fenced = sorted({entry.attempt for entry in self.effective if isinstance(entry, Fence)})

    def published(self, attempt: int) -> list[Publish]:
        """Newest first."""
        return [e for e in reversed(self.effective) if isinstance(e, Publish) and e.attempt == attempt]

    def chose(self, attempt: int) -> Choose | None:
        return next((e for e in self.effective if isinstance(e, Choose) and e.attempt == attempt), None)

    def start(self, attempt: int) -> Publish | None:
        """The newest that earlier attempts have published under the name and digest that the choice names."""
        choice = self.chose(attempt)
        for entry in reversed(self.effective):
            if isinstance(entry, Publish) and entry.attempt < attempt and choice and entry.ref == choice.parent:
                return entry
        return None

    def line(self, publish: Publish | None) -> list[Publish]:
        if publish is None:
            return []
        own = [each for each in self.published(publish.attempt) if each.seq <= publish.seq]
        return own + self.line(self.start(publish.attempt))

    def came_to(self) -> list[Publish]:
        for attempt in reversed(self.fenced):
            newest = next(iter(self.published(attempt)), None) or self.start(attempt)
            if newest is not None:
                return self.line(newest)
        return []

    def gone(self) -> dict[str, Retire]:
        found: dict[str, Retire] = {}
        for entry in self.effective:
            for name in entry.names if isinstance(entry, Retire) else ():
                found.setdefault(name, entry)
        return found

    def open_to(self, attempt: int) -> list[Publish]:
        """What an attempt begins with whose fence comes next."""
        for before in [each for each in reversed(self.fenced) if each < attempt]:
            if self.chose(before) is not None or before == 0:
                newest = next(iter(self.published(before)), None) or self.start(before)
                return [publish for publish in self.line(newest) if publish.name not in self.gone()]
        return []


@settings(max_examples=50, deadline=None)
@given(logs())
def test_what_a_log_means_is_what_loops_over_it_find(entries: list[Entry]) -> None:
    slow = Slow(entries)
    assert list(in_force(entries)) == slow.effective
    assert list(publications(entries)) == [entry for entry in slow.effective if isinstance(entry, Publish)]
    assert retired(entries) == slow.gone()
    assert list(lineage(entries)) == slow.came_to()
    lives = attempts(entries)
    assert sorted(lives) == slow.fenced
    for number, life in lives.items():
        assert list(reversed(life.published)) == slow.published(number)
        assert life.choose == slow.chose(number)
        assert started_from(entries, number) == slow.start(number)
        before = entries[: life.fence.seq]
        assert list(candidates(entries, number)) == Slow(before).open_to(number)
    for publish in publications(entries):
        assert list(ancestry(entries, publish)) == slow.line(publish)


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


def test_of_what_was_published_twice_an_attempt_starts_from_the_newest_before_it() -> None:
    log = [
        Fence(0, 0, "c", _OWNER), published(1, 0, A), Fence(2, 1, "c", _OWNER), Choose(3, 1, A, ()), published(4, 1, A),
        Fence(5, 2, "c", _OWNER), Choose(6, 2, A, ()), published(7, 2, A),
    ]  # fmt: skip
    assert [started_from(log, attempt) for attempt in (1, 2)] == [log[1], log[4]]
    assert [entry.seq for entry in lineage(log)] == [7, 4, 1]


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


def recorded(log: Log, *said: Event[Fenced] | Event[Chosen] | Event[Published] | Event[Retired]) -> Evidence:
    """A run of this log, whose processes recorded this of it."""
    kinds = {type(event.what) for event in said}
    by_kind = {kind: [event for event in said if type(event.what) is kind] for kind in kinds}
    store = Store(log, {}, {}, frozenset())
    return Evidence(store, History({}, (), (), by_kind), None, None, Dataset(""))


def published_as(seq: int, file: str = "committer.jsonl") -> Event[Published]:
    return Event(file, 0, 0, 0, 0, Published("s1", 1, "d1", seq))


def test_a_log_that_has_what_was_recorded_lacks_nothing() -> None:
    log = Log((Fence(0, 0, "c", _OWNER), Choose(1, 0, None, ()), published(2, 0, A), Retire(3, 0, ("s1",))))
    said = (
        Event("supervisor.jsonl", 0, 0, 0, 0, Fenced(0)),
        Event("supervisor.jsonl", 1, 0, 0, 0, Chosen(None, None, 0, 1)),
        published_as(2),
        Event("committer.jsonl", 0, 0, 0, 0, Retired(("s1",), 3)),
        Event("committer.jsonl", 0, 0, 0, 0, Retired(("s1",), None)),  # found retired already: no entry of its own
    )
    assert lost_entries(recorded(log, *said)) == ()
    assert unusable(recorded(log, *said)) == ""


def test_entries_that_were_recorded_and_are_not_there_are_told_in_the_logs_order() -> None:
    log = Log((Fence(0, 0, "c", _OWNER), Retire(1, 0, ())), (Problem("store/log/00000002.json", "is no sealed file"),))
    evidence = recorded(log, *(published_as(seq) for seq in (11, 2, 1, 3)))
    lost = [(each.path, each.what) for each in lost_entries(evidence)]
    assert lost == [
        ("store/log/00000001.json", "is a retire, where committer.jsonl recorded a publish"),
        ("store/log/00000003.json", "is missing: committer.jsonl recorded that this publish was appended"),
        ("store/log/00000011.json", "is missing: committer.jsonl recorded that this publish was appended"),
    ]


def test_of_several_problems_of_the_log_the_first_is_told() -> None:
    problems = tuple(Problem(f"store/log/0000000{n}.json", "is no sealed file") for n in (1, 2, 3))
    evidence = recorded(Log((), problems), published_as(0))
    assert unusable(evidence) == (
        "the commit log is not whole (store/log/00000001.json is no sealed file), see invariant 1"
    )


def test_of_several_lost_entries_the_first_is_told_where_nothing_else_is_wrong() -> None:
    said = (published_as(seq, f"c{seq}.jsonl") for seq in (2, 0, 1))
    assert unusable(recorded(Log(()), *said)) == (
        "the commit log is not whole (store/log/00000000.json is missing: c0.jsonl recorded that this publish "
        "was appended), see invariant 1"
    )
