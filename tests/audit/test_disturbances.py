"""Faults that end no process: each is seen by what it did, explains no death, and needs its receipt."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import audit_files as files
import pytest
from evidence_by_hand import begun, checkpoint, evidence, fence, manifest, receipt, recorded, said, step
from judging import Judge
from simulated_run import Settings, Simulation, fault

from chaos.audit import audit_run
from chaos.audit.disturbance_events import Noticed, Slowed, StoreFailed
from chaos.audit.disturbances import disturbed, unasked
from chaos.audit.events import Event
from chaos.audit.evidence import Entry, Evidence, FileSeen, ManifestSeen, Publish
from chaos.audit.facts import Outage, Process, Receipt, Slow

SLOW = fault(0, 0, "rank", 1, "microbatch.forward", kind="slow", slow={"delay_s": 0.05, "passages": 2})
OUTAGE = fault(0, 0, "rank", 1, "shard.half", kind="outage", outage={"operations": 2, "for_s": None})
STRAY = fault(0, 1, "supervisor", None, "recover.fence.after", kind="stray")
KILL = fault(1, 0, "rank", 1, "step.end")


def seen(folder: Path) -> Any:
    return audit_run(folder).to_json()["faults"][0]["observed"]


def slowed(
    folder: Path, *, passages: int = 2, took_ms: float = 120.0, train_s: float = 0.1, receipt: bool = True,
    die: bool = False, spans: bool = False, planned: dict[str, Any] = SLOW,
) -> Simulation:  # fmt: skip
    """spans: the last delay is in the step after that of the first."""

    def edit(kind: str, thing: dict[str, Any]) -> None:
        if kind == "event" and thing["event"] == "step" and thing["step"] in (4, 5):
            thing["train_s"] = train_s

    sim = Simulation(folder, Settings(faults=[planned]), edit)
    sim.start()
    sim.train(3)
    proc = sim.of("rank", 1)
    if receipt:
        sim.receipt(planned, proc.history, slow=planned["slow"])
    sim.tick(took_ms)
    if spans:
        sim.train(4)
    if passages:
        sim.say(proc.history, "slowed", 0, fault="f0", passages=passages)
    if die:
        sim.exited(proc, 9)
        sim.recover()
    sim.train(12)
    sim.finish()
    return sim


def test_a_delay_shows_in_the_steps_that_it_lies_in(tmp_path: Path) -> None:
    sim = slowed(tmp_path / "run")
    assert audit_run(sim.folder).verdict == "valid"
    assert seen(sim.folder)["how"] == "0.10 s in 2 passages"


def test_a_delay_may_lie_in_several_steps(tmp_path: Path) -> None:
    sim = slowed(tmp_path / "run", train_s=0.07, spans=True)
    assert audit_run(sim.folder).verdict == "valid"
    assert seen(sim.folder)["how"] == "0.14 s in 2 passages"


def test_a_delay_outside_the_steps_shows_between_receipt_and_end(tmp_path: Path) -> None:
    sim = slowed(tmp_path / "run", train_s=0.0, planned={**SLOW, "point": "shard.half"})
    assert audit_run(sim.folder).verdict == "valid"
    assert seen(sim.folder)["how"] == "0.12 s in 2 passages"


@pytest.mark.parametrize("planned", [{**SLOW, "slow": None}, {**SLOW, "kind": "outage", "slow": None}])
def test_a_disturbance_of_no_stated_length_was_not_seen(tmp_path: Path, judged: Judge, planned: Any) -> None:
    sim = slowed(tmp_path / "run", planned=planned)
    assert seen(sim.folder) is None
    judged(sim.folder, 10, "unknown", "fault f0", "has a receipt, but nothing that was recorded shows it")


@pytest.mark.parametrize("how", [{"passages": 1}, {"passages": 0}, {"took_ms": 50.0}, {"train_s": 0.09}])
def test_a_delay_that_is_too_short_or_has_no_end_was_not_seen(tmp_path: Path, judged: Judge, how: Any) -> None:
    sim = slowed(tmp_path / "run", **how)
    assert seen(sim.folder) is None
    judged(sim.folder, 10, "unknown", "has a receipt, but nothing that was recorded shows it")


def test_a_delay_without_a_receipt(tmp_path: Path, judged: Judge) -> None:
    judged(slowed(tmp_path / "run", receipt=False).folder, 10, "unknown", "has delays of f0, and there is no receipt")


def test_a_delay_explains_no_death(tmp_path: Path, judged: Judge) -> None:
    judged(slowed(tmp_path / "run", die=True).folder, 10, "unknown", "(rank 1) died by signal 9, and no receipt or")


def failed(folder: Path, errors: int, *, receipt: bool = True, rank: int = 1) -> Simulation:
    sim = Simulation(folder, Settings(faults=[OUTAGE]))
    sim.start()
    sim.train(3)
    if receipt:
        sim.receipt(OUTAGE, sim.of("rank", 1).history, outage=OUTAGE["outage"])
    for _ in range(errors):
        sim.say(sim.of("rank", rank).history, "store_failed", 0, where="shards/x", what="Input/output error")
    sim.train(12)
    sim.finish()
    return sim


def test_an_outage_shows_in_every_error_of_that_process(tmp_path: Path, judged: Judge) -> None:
    sim = failed(tmp_path / "run", 2)
    assert audit_run(sim.folder).verdict == "valid"
    assert seen(sim.folder)["how"] == "2 errors"
    assert seen(failed(tmp_path / "few", 1).folder) is None
    other = failed(tmp_path / "other", 2, rank=0)
    assert seen(other.folder) is None
    judged(other.folder, 10, "unknown", "says that shards/x was unavailable, and no receipt accounts for it")


def test_errors_of_the_store_without_a_receipt(tmp_path: Path, judged: Judge) -> None:
    judged(failed(tmp_path / "run", 2, receipt=False).folder, 10, "unknown", "did not fire", "shards/x was unavailable")


def strayed(
    folder: Path, *, receipt: bool = True, there: bool = True, run: str = "run-9", other: bool = False
) -> Simulation:
    """other: what lies there is not what the receipt announced."""
    sim = Simulation(folder, Settings(faults=[STRAY, KILL]))
    sim.start()
    sim.train(5)
    sim.kill(KILL)
    newest = sim.folder / "store" / "manifests" / f"{sim.branch[-1]['name']}.json"
    body = {**json.loads(newest.read_bytes())["body"], "run": run, "name": "s00000005-a0000", "step": 5}
    data, digest = files.seal(body)
    path = "store/manifests/s00000005-a0000.json"
    sim.fence()
    if receipt:
        sim.receipt(STRAY, sim.supervisor, path=path, offset=0, before=None, after=digest)
    if there:
        (sim.folder / path).write_bytes(files.seal({**body, "cursor": 1})[0] if other else data)
    sim.choose()
    sim.restore()
    sim.train(12)
    sim.finish()
    return sim


def test_a_stray_is_reported_and_was_not_taken(tmp_path: Path) -> None:
    verdict = audit_run(strayed(tmp_path / "run").folder)
    assert verdict.verdict == "valid", [i.finding for i in verdict.invariants]
    assert verdict.strays == ("manifests/s00000005-a0000.json",)
    assert verdict.to_json()["faults"][0]["observed"]["how"] == "not chosen"


def test_a_stray_without_a_receipt(tmp_path: Path, judged: Judge) -> None:
    sim = strayed(tmp_path / "run", receipt=False)
    judged(sim.folder, 10, "unknown", "store/manifests/s00000005-a0000.json is of another run, and no receipt")
    ours = strayed(tmp_path / "ours", receipt=False, run="run-1")  # as a kill leaves them behind: no other run's
    witness = judged(ours.folder, 10, "unknown", "did not fire")
    assert "another run" not in witness


@pytest.mark.parametrize("how", [{"there": False}, {"other": True}])
def test_a_receipt_of_a_stray_that_is_not_there(tmp_path: Path, judged: Judge, how: Any) -> None:
    sim = strayed(tmp_path / "run", **how)
    judged(sim.folder, 10, "unknown", "fault f0", "has a receipt, but nothing that was recorded shows it")


# -- damage, one thing at a time


def struck(path: str | None, after: str | None = "new") -> Receipt:
    return receipt("damage", path=path, after=after)


@pytest.mark.parametrize("path", ["store/shards/x", "shards/x"])
def test_damage_is_seen_in_the_file_or_in_its_absence(path: str) -> None:
    there = evidence(seen=[FileSeen("shards/x", 3, "new"), FileSeen("shards/y", 3, "old")], present=["shards/x"])
    assert disturbed(there, struck(path)) == "damaged"
    assert disturbed(evidence(present=["shards/y"]), struck(path)) == "removed since"


def test_damage_of_which_the_file_shows_nothing_was_not_seen() -> None:
    whole = evidence(seen=[FileSeen("shards/x", 3, "old")], present=["shards/x"])
    assert disturbed(whole, struck("store/shards/x")) is None
    assert disturbed(evidence(present=["shards/x"]), struck("store/shards/x", after=None)) is None
    assert disturbed(evidence(), struck(None)) is None


# -- errors of the store, one thing at a time

PROCESSES = [
    recorded("worker", pid, name=name, boot=boot, closed=True)
    for name, pid, boot in (("worker", 1, "b"), ("other", 2, "b"), ("later", 1, "boot 2"))
]


def errors(*at: int, file: str = "worker") -> list[Event[StoreFailed]]:
    return [said(StoreFailed(f"shards/{t_ns}"), file=file, t_ns=t_ns) for t_ns in at]


def unanswered(events: list[Event[StoreFailed]], operations: int | None) -> str | None:
    """How an outage is seen that struck process 1 at 100 ns."""
    planned = Outage(operations, None if operations else 2.0)
    return disturbed(evidence(events=events, files=PROCESSES), receipt("outage", t_ns=100, outage=planned))


def test_an_outage_is_seen_if_as_many_errors_came_as_had_to() -> None:
    assert unanswered(errors(101, 102, 103), 3) == "3 errors"
    assert unanswered(errors(101, 102, 103), 4) is None
    assert unanswered(errors(101, 102, 103), 1) == "3 errors"
    assert unanswered(errors(101), 1) == "1 error"


def test_an_outage_for_a_time_is_seen_by_any_error() -> None:
    assert unanswered(errors(101), None) == "1 error"
    assert unanswered(errors(101, 102), None) == "2 errors"
    assert unanswered([], None) is None


def test_errors_before_the_outage_of_others_and_of_another_boot_are_not_its() -> None:
    assert unanswered(errors(99, 100, 101), 1) == "1 error"
    assert unanswered([*errors(101, 102), *errors(103, file="other")], 1) == "2 errors"
    assert unanswered([*errors(101, 102), *errors(103, file="later")], 1) == "2 errors"
    assert unanswered(errors(101, file="nobody's"), 1) is None
    lost = evidence(events=errors(101))
    lost = replace(lost, history=replace(lost.history, files={}))
    assert disturbed(lost, receipt("outage", t_ns=100, outage=Outage(1, None))) is None


def test_errors_whose_file_does_not_say_whose_it_is_are_nobodys() -> None:
    (anonymous,) = (replace(each, opened=None) for each in PROCESSES[:1])
    told = receipt("outage", t_ns=100, outage=Outage(1, None))
    assert disturbed(evidence(events=errors(101), files=[anonymous]), told) is None


def test_a_process_is_known_by_pid_and_time_of_start() -> None:
    known = evidence(events=errors(101), files=PROCESSES)
    told = receipt("outage", outage=Outage(1, None))
    assert disturbed(known, told) == "1 error"
    for target in (Process(1, 11, "h"), Process(2, 10, "h")):
        assert disturbed(known, replace(told, target=target)) is None


# -- delays, one thing at a time


def ended(t_ns: int, *, passages: int = 2, file: str = "worker", n: int = 4, name: str = "f0") -> Event[Slowed]:
    return said(Slowed(name, passages), file=file, t_ns=t_ns, n=n)


def late(*events: Event[Any], delay_s: float = 0.5, point: str | None = "shard.half") -> str | None:
    """How a delay of two passages is seen that struck process 1 at 100 ns."""
    told = receipt("slow", t_ns=100, point=point, slow=Slow(delay_s, 2))
    return disturbed(evidence(events=events, files=PROCESSES), told)


def test_a_delay_is_seen_if_it_took_as_long_as_it_had_to() -> None:
    assert late(ended(1_000_000_100)) == "1.00 s in 2 passages"
    assert late(ended(1_000_000_099)) is None
    assert late(ended(2_500_000_100)) == "2.50 s in 2 passages"
    assert late(ended(2_500_000_100), point=None) == "2.50 s in 2 passages"


def test_the_end_of_another_delay_is_passed_over() -> None:
    right = ended(1_250_000_100)
    for other in (ended(101, passages=1), ended(101, file="other"), ended(101, name="f1")):
        assert late(other, right) == "1.25 s in 2 passages"
        assert late(other) is None


def test_instants_of_another_boot_prove_no_delay() -> None:
    assert late(ended(9_000_000_000, file="later")) is None


def test_a_delay_within_steps_is_what_these_took_from_the_first_passage_to_the_last() -> None:
    steps = [
        said(step(0, 1, train_s=100.0), n=1, t_ns=99),
        said(step(0, 2, train_s=100.0), n=2, t_ns=100),
        said(step(0, 3, train_s=1.0), n=3, t_ns=200),
        said(step(0, 4, train_s=2.0), n=5, t_ns=300),
        said(step(0, 5, train_s=100.0), n=6, t_ns=400),
    ]
    others = [
        said(step(0, 3, train_s=100.0), n=3, t_ns=200, file="other"),
        said(step(0, 3, train_s=9.0), attempt=1, t_ns=200),
    ]
    end = ended(9_000_000_000)
    for point in ("step.begin", "microbatch.forward", "reduce.half", "optimizer.before", "scheduler.after"):
        assert late(*others, *steps, end, delay_s=1.5, point=point) == "3.00 s in 2 passages"
        assert late(*others, *steps, end, delay_s=1.6, point=point) is None
    assert late(*others, *steps, end, delay_s=1.6, point="step.end") == "9.00 s in 2 passages"
    assert late(*steps, ended(100_000_100), delay_s=1.5, point="step.begin") is None  # the steps cannot be longer


def test_a_step_that_was_not_finished_counts_for_nothing() -> None:
    assert late(said(step(0, 3, train_s=1.25), n=3, t_ns=200), ended(9_000_000_000), point="step.begin") == (
        "1.25 s in 2 passages"
    )
    assert late(ended(9_000_000_000), point="step.begin") is None


# -- manifests of another run, one thing at a time

STRAY_PATH = "manifests/s00000005-a0000.json"


def lying(run: str = "run-9", digest: str = "new", *, published: bool = False, known: bool = True) -> Evidence:
    """A manifest s00000005-a0000 behind another one of this run. published: the log names it too."""
    name = "s00000005-a0000"
    seen = ManifestSeen(STRAY_PATH, manifest(checkpoint(5, 0), run=run), digest)
    ours = ManifestSeen("manifests/s00000004-a0000.json", manifest(checkpoint(4, 0)), "new")
    broken = ManifestSeen("manifests/s00000003-a0000.json", problem="is no manifest")
    entries: list[Entry] = [fence(0, 0), Publish(1, 0, "s00000004-a0000", "new", 4)]
    entries += [Publish(2, 0, name, "new", 5)] if published else []
    return evidence(entries=entries, manifests=[broken, ours, seen], begun=begun() if known else None)


def test_a_stray_is_seen_where_the_receipt_says() -> None:
    told = receipt("stray", path=f"store/{STRAY_PATH}", after="new")
    assert disturbed(lying(), told) == "not chosen"
    assert disturbed(lying(digest="other"), told) is None
    assert disturbed(lying(run="run-1"), told) is None
    assert disturbed(lying(published=True), told) is None
    assert disturbed(lying(known=False), told) is None
    assert disturbed(lying(), replace(told, path="store/manifests/s00000006-a0000.json")) is None


def test_a_manifest_of_another_run_needs_a_receipt_that_names_it() -> None:
    words = [f"store/{STRAY_PATH} is of another run, and no receipt accounts for it"]
    assert list(unasked(lying())) == words
    assert list(unasked(lying(published=True))) == list(unasked(lying(run="run-1"))) == []
    named = receipt("stray", path=f"store/{STRAY_PATH}")
    for receipts, found in (
        ([named], []),
        ([replace(named, path="store/x"), named], []),
        ([replace(named, path="store/x")], words),
        ([replace(named, kind="damage")], words),
    ):
        assert list(unasked(with_receipts(lying(), *receipts))) == found


def with_receipts(of_a_run: Evidence, *receipts: Receipt) -> Evidence:
    return replace(of_a_run, history=replace(of_a_run.history, receipts=receipts))


# -- what nobody asked for, one thing at a time


def told(event: Event[Any], *receipts: Receipt) -> list[str]:
    return list(unasked(evidence(events=[event], files=PROCESSES, receipts=receipts)))


def test_a_notice_to_the_rank_itself_needs_a_receipt_of_its_process() -> None:
    notice = said(Noticed(1, 7, own=True), attempt=3)
    words = ["rank 1 of attempt 3 was given notice before the end of step 7, and no receipt accounts for it"]
    assert told(notice) == words
    assert told(notice, receipt("sigterm", pid=2)) == told(notice, receipt("sigkill")) == words
    assert told(notice, receipt("sigterm")) == told(notice, receipt("sigkill"), receipt("sigterm")) == []
    assert told(said(Noticed(1, 7, own=False))) == []


def test_errors_of_the_store_need_a_receipt_of_their_process() -> None:
    error = said(StoreFailed("shards/x"))
    words = ["history/worker says that shards/x was unavailable, and no receipt accounts for it"]
    assert told(error) == told(error, receipt("outage", pid=2)) == told(error, receipt("slow")) == words
    assert told(error, receipt("outage")) == told(error, receipt("outage", pid=2), receipt("outage")) == []


def test_of_several_errors_of_the_store_the_first_without_a_receipt_is_told() -> None:
    events = [*errors(1), *errors(2, 3, file="other")]
    words = "history/{} says that shards/{} was unavailable, and no receipt accounts for it"
    assert list(unasked(evidence(events=events, files=PROCESSES))) == [words.format("worker", 1)]
    one = evidence(events=events, files=PROCESSES, receipts=[receipt("outage")])
    assert list(unasked(one)) == [words.format("other", 2)]


def test_a_delay_needs_the_receipt_of_its_fault() -> None:
    words = ["history/worker has delays of f0, and there is no receipt of them"]
    other = replace(receipt("slow"), fault="f1")
    assert told(ended(1)) == told(ended(1), other) == told(ended(1), receipt("outage")) == words
    assert told(ended(1), receipt("slow")) == told(ended(1), other, receipt("slow")) == []
