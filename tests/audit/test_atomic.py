"""Invariant 1: no damage of anything published goes unseen, wherever it lies; announced damage is expected."""

from __future__ import annotations

import random
import threading
from pathlib import Path
from typing import Any

import pytest
from audit_files import bodies, rechain
from evidence_by_hand import RUN, Entries, begun, checkpoint, complete, evidence, said, segment, shard, stored
from judging import Judge, says
from simulated_run import F0, Settings, Simulation, fault, one_kill, two_kills

from chaos.audit import atomic, audit_run, read_store
from chaos.audit.events import Published
from chaos.audit.evidence import Evidence, Log, ManifestSeen, Problem, Retire
from chaos.audit.formats import FormatError, unseal

DAMAGE = fault(5, 0, "store", None, None, kind="damage", hit=None)  # type: ignore[arg-type]


def published_files(run: Simulation) -> list[Path]:
    store = run.folder / "store"
    found = [p for p in store.rglob("*") if p.is_file()]
    return sorted(found)


@pytest.mark.no_cover
def test_one_flipped_bit_in_any_file_is_invalid(tmp_path: Path) -> None:
    run, rng = one_kill(tmp_path / "run", steps=6), random.Random(1)
    assert {path.parent.name for path in published_files(run)} == {"log", "manifests", "shards", "ledger"}
    for path in published_files(run):
        before = path.read_bytes()
        for place in {0, len(before) - 1, *(rng.randrange(len(before)) for _ in range(3))}:
            after = bytearray(before)
            after[place] ^= 1 << rng.randrange(8)
            path.write_bytes(after)
            verdict = audit_run(run.folder)
            assert verdict.verdict == "invalid", (path, place)
            says(verdict, 1, "invalid", path.name)
        path.write_bytes(before)
    assert audit_run(run.folder).verdict == "valid"


@pytest.mark.parametrize("path", ["log/00000003.json", "manifests/s00000006-a0001.json"])
def test_a_sealed_file_cut_anywhere_is_invalid(run: Simulation, judged: Judge, path: str) -> None:
    file = run.folder / "store" / path
    data = file.read_bytes()
    for length in range(len(data)):
        with pytest.raises(FormatError):
            unseal(data[:length])
    for length in (0, 1, len(data) // 2, len(data) - 1):
        file.write_bytes(data[:length])
        judged(run.folder, 1, "invalid", path)


def test_many_bytes_are_read_at_once_and_look_no_different(run: Simulation, monkeypatch: pytest.MonkeyPatch) -> None:
    store = run.folder / "store"
    (store / "shards" / "s00000012-a0002-r0001.safetensors").write_bytes(b"x")
    one_by_one = read_store.read_store(store)
    monkeypatch.setattr(read_store, "_MUCH_BYTES", 0)
    threads: set[int] = set()
    seen = read_store.see_file

    def noted(*file: Any) -> Any:
        threads.add(threading.get_ident())
        return seen(*file)

    monkeypatch.setattr(read_store, "see_file", noted)
    at_once = read_store.read_store(store)
    assert threads
    assert threading.get_ident() not in threads
    told = [(path, file.bytes, file.digest, file.problem, file.shard) for path, file in one_by_one.files.items()]
    assert told == [(path, file.bytes, file.digest, file.problem, file.shard) for path, file in at_once.files.items()]
    assert at_once.files["shards/s00000012-a0002-r0001.safetensors"].problem


@pytest.mark.parametrize(
    "path", ["shards/s00000012-a0002-r0001.safetensors", "ledger/s00000002-a0000-r0000.arrow"]
)
@pytest.mark.parametrize("share", [0.0, 0.3, 0.99])
def test_a_torn_file_is_invalid(run: Simulation, judged: Judge, path: str, share: float) -> None:
    file = run.folder / "store" / path
    data = file.read_bytes()
    file.write_bytes(data[: int(len(data) * share)])
    judged(run.folder, 1, "invalid", path, "bytes, its manifest says")


@pytest.mark.parametrize(
    "path",
    [
        "manifests/s00000002-a0000.json",
        "manifests/s00000012-a0002.json",
        "ledger/s00000002-a0000-r0001.arrow",
        "shards/s00000012-a0002-r0000.safetensors",
    ],
)
def test_a_missing_file_is_invalid(run: Simulation, judged: Judge, path: str) -> None:
    (run.folder / "store" / path).unlink()
    judged(run.folder, 1, "invalid", path, "is missing")


def test_the_witness_names_the_checkpoint_and_its_entry(run: Simulation, judged: Judge) -> None:
    (run.folder / "store/ledger/s00000004-a0000-r0000.arrow").unlink()
    judged(run.folder, 1, "invalid", "published s00000004-a0000 (entry 3) is not whole")


def test_shards_may_be_gone_once_retired_and_only_then(run: Simulation, tmp_path: Path) -> None:
    assert not list((run.folder / "store/shards").glob("s00000002-*"))
    kept = two_kills(tmp_path / "kept", keep=99)
    assert audit_run(kept.folder).verdict == "valid"
    for path in (kept.folder / "store/shards").glob("s00000002-*"):
        path.unlink()
    says(audit_run(kept.folder), 1, "invalid", "s00000002-a0000-r0000.safetensors is missing")


def test_a_log_entry_missing_in_the_middle_is_named(run: Simulation, judged: Judge) -> None:
    (run.folder / "store/log/00000005.json").unlink()
    judged(run.folder, 1, "invalid", "00000005.json", "is missing, though entry 6 is there")


def test_a_log_cut_at_its_end_is_named_by_the_history(run: Simulation, judged: Judge) -> None:
    last = max((run.folder / "store/log").iterdir())
    last.unlink()
    judged(run.folder, 1, "invalid", last.name, "recorded that this retire was appended")


@pytest.mark.parametrize(
    ("change", "words"),
    [
        ({"previous": "sha256:" + "0" * 64}, "does not name the entry before it"),
        ({"previous": None}, "names no predecessor"),
        ({"previous": 7}, "names no run or no predecessor"),
        ({"run": "another"}, "belongs to run another"),
        ({"run": None}, "names no run"),
        ({"seq": 9}, "is entry 9 under another entry's name"),
        ({"kind": "renounce"}, "kind 'renounce'"),
        ({"format": "killpoint.log/2"}, "format 'killpoint.log/2'"),
        ({"step": "4"}, "step is '4', not int"),
        ({"step": 1 << 70}, "step is out of range"),
        ({"name": None}, "name is None"),
    ],
)
def test_a_resealed_entry_that_does_not_fit(
    tmp_path: Path, judged: Judge, change: dict[str, object], words: str
) -> None:
    def edit(kind: str, thing: dict[str, object]) -> None:
        if kind == "entry" and thing["seq"] == 3:
            thing.update(change)

    run = two_kills(tmp_path / "run", edit)
    judged(run.folder, 1, "invalid", "00000003.json", words)
    others = audit_run(run.folder)
    assert {i.finding.verdict.value for i in others.invariants if i.id in (2, 3, 4, 6, 7, 8)} == {"unknown"}
    says(others, 2, "unknown", "the commit log is not whole", "see invariant 1")


def test_entries_of_another_kind_than_recorded(run: Simulation, judged: Judge) -> None:
    path = next((run.folder / "history").glob("supervisor-*"))
    events = bodies(path)
    for event in events:
        if event["event"] == "fenced" and event["attempt"] == 1:
            event["seq"] -= 1
    rechain(path, events)
    judged(run.folder, 1, "invalid", "is a publish, where", "recorded a fence")


@pytest.mark.parametrize(
    ("change", "words"),
    [
        ({"run": "another"}, "belongs to run another"),
        ({"step": 5}, "published as s00000004-a0000"),
        ({"attempt": 3}, "published by 0"),
        ({"world": 3}, "does not list the ranks"),
        ({"world": 0}, "does not list the ranks"),
        ({"files": []}, "does not name one shard and one ledger segment"),
        ({"parts": {"model": "x"}}, "does not digest every part"),
        ({"format": "killpoint.manifest/9"}, "is no manifest"),
        ({"tensors": {"model/p0": 1}}, "tensors.model/p0 is 1, not str"),
        ({"tensors": []}, "tensors is no object"),
        ({"ranks": {}}, "ranks is no list"),
        ({"ranks": [3]}, "ranks is no object"),
        ({"fingerprints": {}}, "fingerprints lacks code, config, dataset, plan"),
    ],
)
def test_a_resealed_manifest_that_does_not_fit(
    tmp_path: Path, judged: Judge, change: dict[str, object], words: str
) -> None:
    def edit(kind: str, thing: dict[str, object]) -> None:
        if kind == "manifest" and thing["name"] == "s00000004-a0000":
            thing.update(change)

    run = two_kills(tmp_path / "run", edit)
    judged(run.folder, 1, "invalid", "s00000004-a0000.json", words)


def test_a_file_that_is_named_twice(tmp_path: Path, judged: Judge) -> None:
    def edit(kind: str, thing: dict[str, list[object]]) -> None:
        if kind == "manifest":
            thing["files"].append(thing["files"][0])

    judged(two_kills(tmp_path / "run", edit).folder, 1, "invalid", "see one twice")


def test_a_rank_without_a_part(tmp_path: Path, judged: Judge) -> None:
    def edit(kind: str, thing: dict[str, list[dict[str, dict[str, str]]]]) -> None:
        if kind == "manifest":
            del thing["ranks"][1]["parts"]["rng.numpy"]

    judged(two_kills(tmp_path / "run", edit).folder, 1, "invalid", "does not digest every part")


def test_a_manifest_in_place_of_another(run: Simulation, judged: Judge) -> None:
    folder = run.folder / "store/manifests"
    (folder / "s00000004-a0000.json").write_bytes((folder / "s00000006-a0001.json").read_bytes())
    judged(run.folder, 1, "invalid", "is not the manifest that entry 3 published")


def test_a_checkpoint_that_was_published_twice(tmp_path: Path, judged: Judge) -> None:
    sim = Simulation(tmp_path / "run")
    sim.start()
    sim.train(2)
    sim.append("publish", **sim.branch[0])
    sim.train(12)
    sim.finish()
    judged(sim.folder, 1, "invalid", "s00000002-a0000 was published 2 times")


def damaged_run(tmp_path: Path, announce: bool) -> Simulation:
    """The newest checkpoint is damaged before a rank is killed; the recovery rejects it and takes the one before."""
    sim = Simulation(tmp_path / "run", Settings(faults=[F0, DAMAGE], keep=99))
    sim.start()
    sim.train(5)
    sim.damage("shards/s00000004-a0000-r0001.safetensors", DAMAGE if announce else None)
    sim.kill(F0)
    sim.recover(reject=1)
    sim.train(12)
    sim.finish()
    return sim


def test_announced_damage_is_expected(tmp_path: Path) -> None:
    verdict = audit_run(damaged_run(tmp_path, announce=True).folder)
    assert verdict.verdict == "valid"
    assert verdict.faults[1].observed is not None
    assert verdict.faults[1].observed.how == "damaged"


def test_damage_that_nobody_announced_is_not(tmp_path: Path, judged: Judge) -> None:
    judged(damaged_run(tmp_path, announce=False).folder, 1, "invalid", "s00000004-a0000-r0001", "has digest")


def test_announced_damage_covers_no_other_damage_of_the_file(tmp_path: Path, judged: Judge) -> None:
    sim = damaged_run(tmp_path, announce=True)
    sim.damage("shards/s00000004-a0000-r0001.safetensors")
    sim.damage("shards/s00000004-a0000-r0001.safetensors")
    assert audit_run(sim.folder).verdict == "valid"  # there and back again
    file = sim.folder / "store/shards/s00000004-a0000-r0001.safetensors"
    file.write_bytes(file.read_bytes()[:-1])
    judged(sim.folder, 1, "invalid", "s00000004-a0000-r0001")


def test_a_damaged_file_that_was_moved_away_is_expected(tmp_path: Path, judged: Judge) -> None:
    path = "shards/s00000004-a0000-r0001.safetensors"
    sim = Simulation(tmp_path / "run", Settings(faults=[F0, DAMAGE], keep=99))
    sim.start()
    sim.train(5)
    sim.damage(path, DAMAGE)
    sim.kill(F0)
    sim.recover(reject=1)
    (sim.folder / "store" / path).rename(sim.folder / "store/quarantine/x")
    sim.say(sim.of("committer").history, "quarantined", 1, path=path, why="digest")
    sim.train(12)
    sim.finish()
    verdict = audit_run(sim.folder)
    assert verdict.verdict == "valid"
    assert verdict.faults[1].observed is not None
    assert verdict.faults[1].observed.how == "removed since"
    (sim.folder / "store" / path.replace("r0001", "r0000")).unlink()
    judged(sim.folder, 1, "invalid", "r0000.safetensors is missing")


@pytest.mark.parametrize("path", ["log/00000002.json", "manifests/s00000004-a0000.json"])
def test_announced_damage_of_sealed_files(tmp_path: Path, path: str) -> None:
    sim = Simulation(tmp_path / "run", Settings(faults=[DAMAGE]))
    sim.start()
    sim.train(12)
    sim.damage(path, DAMAGE)
    sim.finish()
    verdict = audit_run(sim.folder)
    says(verdict, 1, "valid")
    assert verdict.verdict == "unknown"


def test_without_a_log_nothing_is_judged(tmp_path: Path) -> None:
    says(audit_run(tmp_path), 1, "not_judged", "no commit log")


def test_strays_are_told_beside_a_manifest_and_an_entry_that_are_damaged(run: Simulation) -> None:
    (run.folder / "store/tmp/left").write_bytes(b"")
    (run.folder / "store/manifests/s00000012-a0002.json").write_bytes(b"{")
    (run.folder / "store/log/00000003.json").write_bytes(b"{")
    strays = audit_run(run.folder).strays
    assert "tmp/left" in strays
    assert not {"log/00000003.json", "manifests/s00000012-a0002.json"} & set(strays)


# -- the check by itself, on evidence without files

CHECKPOINT = checkpoint(2, 0)
NAME, SHARD, LEDGER = CHECKPOINT.name, shard(CHECKPOINT), segment(CHECKPOINT)


def found(entries: Entries, **more: Any) -> Evidence:
    """Of a run that says what it is."""
    return evidence(entries, **{"begun": begun(), **more})


def published(
    *after: Retire, lost: tuple[str, ...] = (), unreadable: tuple[str, ...] = (), times: int = 1
) -> Evidence:
    """A checkpoint of one rank, what of its files is lost or cannot be read, and entries after it."""
    log = Entries().fence().choose(None).publish(*[2] * times)
    log.made += after
    store = stored(complete(CHECKPOINT), lost=lost, unreadable=unreadable)
    entries = {f"log/{entry.seq:08d}.json" for entry in log.made}
    return found(log, present=frozenset({f"manifests/{NAME}.json", *store["seen"], *entries}), **store)


def test_what_is_published_once_and_whole_is_valid() -> None:
    finding = atomic.check(published())
    assert (finding.verdict, finding.witness) == ("valid", "")


def test_no_log_at_all_is_not_judged() -> None:
    assert atomic.check(found(Entries())).verdict == "not_judged"


def test_a_log_of_which_nothing_can_be_read_is_judged() -> None:
    problem = Problem("store/log/00000000.json", "is no sealed file")
    finding = atomic.check(found(Entries(), log=Log((), (problem,), None)))
    assert (finding.verdict, finding.witness) == ("invalid", "store/log/00000000.json is no sealed file")


def test_an_entry_that_the_system_would_not_let_be_read_proves_nothing() -> None:
    problem = Problem("store/log/00000000.json", "cannot be read: Permission denied", unreadable=True)
    assert atomic.check(found(Entries(), log=Log((), (problem,), None))).verdict == "unknown"


def test_an_entry_alone_is_something_to_judge() -> None:
    assert atomic.check(found(Entries().fence())).verdict == "valid"


def test_log_and_history_are_of_one_run() -> None:
    log = Entries().fence()
    other = Log(tuple(log.made), (), "run-9")
    finding = atomic.check(found(log, log=other))
    assert finding.witness == "the commit log is of run run-9, the history of run-1"
    assert finding.verdict == "invalid"
    assert atomic.check(found(log, log=other, begun=begun(run="run-9"))).verdict == "valid"
    assert atomic.check(found(log, log=other, begun=None)).verdict == "valid"  # nothing says of which run it is
    assert atomic.check(found(log, log=Log(tuple(log.made), (), None))).verdict == "valid"


def test_what_was_recorded_as_appended_is_in_the_log() -> None:
    finding = atomic.check(found(Entries().fence(), events=[said(Published("s", 1, "d", 1), file="committer.jsonl")]))
    assert finding.verdict == "invalid"
    assert finding.witness == (
        "store/log/00000001.json is missing: committer.jsonl recorded that this publish was appended"
    )


@pytest.mark.parametrize("times", [1, 2, 3])
def test_a_name_is_published_once(times: int) -> None:
    witness = atomic.check(published(times=times)).witness
    assert witness == ("" if times == 1 else f"{NAME} was published {times} times")


@pytest.mark.parametrize(
    ("path", "retired", "allowed"),
    [(SHARD, NAME, True), (SHARD, "another", False), (LEDGER, NAME, False), (LEDGER, "another", False)],
)
def test_only_the_shards_of_what_was_retired_may_be_gone(path: str, retired: str, allowed: bool) -> None:
    finding = atomic.check(published(Retire(3, 0, (retired,)), lost=(path,)))
    assert finding.verdict == ("valid" if allowed else "invalid")
    missing = f"published {NAME} (entry 2) is not whole: store/{path} is missing"
    assert finding.witness == ("" if allowed else missing)


def test_a_shard_that_is_there_must_be_whole_even_where_it_was_retired() -> None:
    finding = atomic.check(published(Retire(3, 0, (NAME,)), unreadable=(SHARD,)))
    assert finding.verdict == "unknown"
    assert finding.witness == f"published {NAME} (entry 2) is not whole: store/{SHARD} cannot be read"


def test_strays_are_what_nothing_published_names() -> None:
    whole = published()
    assert atomic.strays(whole) == ()
    lost = found(Entries().fence(), manifests={}, present=whole.store.present)
    left = {f"manifests/{NAME}.json", SHARD, LEDGER, "log/00000001.json", "log/00000002.json"}
    assert atomic.strays(lost) == tuple(sorted(left))


def test_files_of_a_manifest_that_is_lost_are_named_by_nothing() -> None:
    store = published().store
    log = Entries().fence().choose(None).publish(2)
    assert atomic.strays(found(log, present=store.present)) == (LEDGER, SHARD)
    seen = ManifestSeen(f"manifests/{NAME}.json", problem="is no sealed file")
    assert atomic.strays(found(log, manifests={NAME: seen}, present=store.present)) == (LEDGER, SHARD)


def test_an_entry_that_cannot_be_read_is_no_stray() -> None:
    problem = Problem("store/log/00000001.json", "is no sealed file")
    log = Log(tuple(Entries().fence().made), (problem,), RUN)
    present = frozenset({"log/00000000.json", "log/00000001.json", "log/00000002.json"})
    assert atomic.strays(found(Entries(), log=log, present=present)) == ("log/00000002.json",)
