"""Invariant 2: which checkpoint a restart chose, why, and whether that is what the ranks restored."""

from __future__ import annotations

import errno
from dataclasses import replace
from pathlib import Path
from typing import Any

import audit_files as files
import pytest
from evidence_by_hand import (
    Entries,
    begun,
    checkpoint,
    complete,
    evidence,
    note,
    receipt,
    recorded,
    said,
    segment,
    shard,
    stored,
)
from judging import Judge, says
from simulated_run import F0, F1, Settings, Simulation, fault, ref, two_kills

from chaos.audit import audit_run, newest, read_files, read_store
from chaos.audit.events import Chosen, Loaded, Restored
from chaos.audit.evidence import Manifest, Ref, Retire
from chaos.audit.facts import Receipt

DAMAGE = fault(5, 0, "store", None, None, kind="damage", hit=None)  # type: ignore[arg-type]
F2 = fault(2, 2, "rank", 0, "step.end", hit=2)
SHARD = "shards/s00000004-a0000-r0001.safetensors"


def one_kill(tmp_path: Path, keep: int = 99, faults: tuple[dict[str, Any], ...] = (F0,)) -> Simulation:
    """Killed after step 5, with s00000002 and s00000004 published; not yet recovered."""
    sim = Simulation(tmp_path / "run", Settings(faults=list(faults), keep=keep))
    sim.start()
    sim.train(5)
    sim.kill(F0)
    return sim


def go_on(sim: Simulation, **choice: Any) -> Path:
    sim.recover(**choice)
    sim.train(12)
    sim.finish()
    return sim.folder


def test_the_newest_is_right(tmp_path: Path, judged: Judge) -> None:
    judged(go_on(one_kill(tmp_path)), 2, "valid")


def test_an_older_one_without_a_reason(tmp_path: Path, judged: Judge) -> None:
    folder = go_on(one_kill(tmp_path), take=1)
    judged(
        folder, 2, "invalid", "attempt 1 (entry 5) took s00000002-a0000, older than s00000004-a0000",
        "lists it as not_examined without a reason; it verifies",
    )  # fmt: skip
    judged(folder, 8, "valid")


def test_an_older_one_with_an_untrue_reason(tmp_path: Path, judged: Judge) -> None:
    folder = go_on(one_kill(tmp_path), reject=1)
    judged(folder, 2, "invalid", "rejected s00000004-a0000 (has another digest)", "the newer one verifies")


def test_a_rejection_needs_words(tmp_path: Path, judged: Judge) -> None:
    sim = one_kill(tmp_path, faults=(F0, DAMAGE))
    sim.damage(SHARD, DAMAGE)
    judged(
        go_on(sim, reject=1, reason=""),
        2,
        "invalid",
        "lists it as rejected without a reason",
        "does not verify",
    )


def test_an_older_one_because_the_newer_is_damaged(tmp_path: Path, judged: Judge) -> None:
    sim = one_kill(tmp_path, faults=(F0, DAMAGE))
    sim.damage(SHARD, DAMAGE)
    judged(go_on(sim, reject=1), 2, "valid")


def test_a_rejection_for_damage_that_was_repaired_since(tmp_path: Path, judged: Judge) -> None:
    sim = one_kill(tmp_path, faults=(F0, DAMAGE))
    sim.damage(SHARD, DAMAGE)
    sim.recover(reject=1)
    sim.damage(SHARD)
    sim.train(12)
    sim.finish()
    judged(sim.folder, 2, "valid")


@pytest.mark.parametrize("refused", [True, False])
def test_a_rejection_of_what_was_retired_since(tmp_path: Path, judged: Judge, refused: bool) -> None:
    sim = one_kill(tmp_path)
    sim.recover(reject=1)
    if refused:
        sim.say(sim.of("rank", 0).history, "loaded", 1, rank=0, name="s00000004-a0000", ok=False, reason="digest",
                bytes=0, duration_s=0.0)  # fmt: skip
    sim.retire(["s00000004-a0000"])
    sim.train(12)
    sim.finish()
    words = () if refused else ("rejected s00000004-a0000", "it was retired since")
    judged(sim.folder, 2, "valid" if refused else "unknown", *words)


def test_a_flipped_bit_that_was_accepted(tmp_path: Path, judged: Judge) -> None:
    """The shard is damaged, and what the ranks restored differs from the manifest."""
    sim = one_kill(tmp_path)
    sim.damage(SHARD)

    def other(kind: str, thing: dict[str, Any]) -> None:
        if (
            kind == "event"
            and thing["event"] == "restored"
            and thing["role"] == "worker"
            and sim.attempt == 1
        ):
            thing["parts"]["model"] = "xxh3-128:0"

    sim.edit = other
    judged(go_on(sim), 2, "invalid", "took s00000004-a0000, which does not verify", SHARD, "has digest")


def test_announced_damage_before_the_choice_was_accepted(tmp_path: Path, judged: Judge) -> None:
    sim = one_kill(tmp_path, faults=(F0, DAMAGE))
    sim.damage(SHARD, DAMAGE)
    judged(go_on(sim), 2, "invalid", "took s00000004-a0000, which did not verify")


@pytest.mark.parametrize("boot", ["b", "another"])
def test_announced_damage_after_the_choice_is_no_fault_of_it(
    tmp_path: Path, judged: Judge, boot: str
) -> None:
    late = {**DAMAGE, "attempt": 1}
    sim = one_kill(tmp_path, faults=(F0, late))
    sim.recover()
    sim.edit = lambda kind, thing: thing.update(boot=boot) if kind == "receipt" else None
    sim.damage(SHARD, late)
    sim.train(12)
    sim.finish()
    judged(sim.folder, 2, "valid")


def test_damage_of_unknown_date_where_the_restored_state_was_whole(tmp_path: Path, judged: Judge) -> None:
    sim = one_kill(tmp_path)
    folder = go_on(sim)
    sim.damage(SHARD)
    judged(folder, 2, "unknown", "does not verify now", "nothing says since when")
    judged(folder, 1, "invalid", SHARD)


def test_damage_of_a_chosen_ledger_segment(tmp_path: Path, judged: Judge) -> None:
    sim = one_kill(tmp_path)
    folder = go_on(sim)
    sim.damage("ledger/s00000004-a0000-r0000.arrow")
    judged(folder, 2, "unknown", "nothing says since when")


def test_damage_of_a_chosen_manifest(tmp_path: Path, judged: Judge) -> None:
    sim = one_kill(tmp_path)
    folder = go_on(sim)
    (folder / "store/manifests/s00000004-a0000.json").unlink()
    judged(folder, 2, "invalid", "manifests/s00000004-a0000.json is missing")


def test_a_fresh_start_over_good_data(tmp_path: Path, judged: Judge) -> None:
    folder = go_on(one_kill(tmp_path), take=9)
    judged(folder, 2, "invalid", "attempt 1 made a fresh start over s00000004-a0000 and s00000002-a0000, which "
           "were published")  # fmt: skip


def test_a_fresh_start_because_everything_was_damaged(tmp_path: Path, judged: Judge) -> None:
    other = {**DAMAGE, "id": "f6"}
    sim = one_kill(tmp_path, faults=(F0, DAMAGE, other))
    sim.damage(SHARD, DAMAGE)
    sim.damage("shards/s00000002-a0000-r0000.safetensors", other)
    judged(
        go_on(sim, reject=2), 2, "invalid", "every candidate being rejected: stopping would have been right"
    )


def test_a_fresh_start_is_right_where_nothing_was_published(tmp_path: Path, judged: Judge) -> None:
    early = {**F0, "hit": 1}
    sim = Simulation(tmp_path / "run", Settings(faults=[early]))
    sim.start()
    sim.train(1)
    sim.kill(early)
    judged(go_on(sim), 2, "valid")


def test_a_stray_that_was_taken_unverified(tmp_path: Path, judged: Judge) -> None:
    """The newest directory is taken though its save never finished."""
    sim = Simulation(tmp_path / "run", Settings(faults=[F0], keep=99))
    sim.start()
    sim.train(5)
    sim.train(6, publish=False)
    step, taken = sim.pending.pop()
    data, digest = files.seal(sim.write(step, taken))
    (sim.folder / "store/manifests/s00000006-a0000.json").write_bytes(data)
    sim.kill(F0)
    sim.edit = take({"name": "s00000006-a0000", "digest": digest, "step": 6})
    judged(go_on(sim), 2, "invalid", "chose s00000006-a0000, which is no candidate", "taken unverified")


def take(parent: dict[str, Any]) -> Any:
    """Lets every choice after the first be of this parent."""

    def edit(kind: str, thing: dict[str, Any]) -> None:
        if kind == "entry" and thing["kind"] == "choose" and thing["attempt"] > 0:
            thing["parent"] = dict(parent)

    return edit


def test_another_runs_checkpoint(tmp_path: Path, judged: Judge) -> None:
    sim = one_kill(tmp_path)
    body = {"run": "run-9", "name": "s00000008-a0000"}
    original = (sim.folder / "store/manifests/s00000004-a0000.json").read_bytes()
    data, digest = files.seal({**files.json.loads(original)["body"], **body})
    (sim.folder / "store/manifests/s00000008-a0000.json").write_bytes(data)
    sim.edit = take({"name": "s00000008-a0000", "digest": digest, "step": 8})
    judged(go_on(sim), 2, "invalid", "it belongs to another run, run-9")


def test_a_retired_checkpoint(tmp_path: Path, judged: Judge) -> None:
    sim = one_kill(tmp_path)
    sim.append("retire", names=["s00000002-a0000"])
    sim.edit = take(ref(sim.branch[0]))
    judged(go_on(sim), 2, "invalid", "chose s00000002-a0000, which is no candidate: entry 4 had retired it")


def test_the_branch_that_an_earlier_choice_had_left_behind(tmp_path: Path, judged: Judge) -> None:
    """Attempt 1 rejects step 4 for damage, attempt 2 returns to it once it verifies again."""
    sim = one_kill(tmp_path, faults=(F0, F1, DAMAGE))
    sim.damage(SHARD, DAMAGE)
    left = ref(sim.branch[1])
    sim.recover(reject=1)
    sim.train(3)
    sim.damage(SHARD)
    sim.kill(F1)
    sim.edit = take(left)
    judged(
        go_on(sim), 2, "invalid", "attempt 2 chose s00000004-a0000, which is no candidate",
        "a branch of attempt 0 that an earlier choice had left behind", "the newest candidate is s00000002-a0000",
    )  # fmt: skip


def test_the_left_branch_is_named_even_without_candidates(tmp_path: Path, judged: Judge) -> None:
    sim = one_kill(tmp_path, faults=(F0, F1))
    left = ref(sim.branch[1])
    sim.recover(take=9)
    sim.train(1)
    sim.kill(F1)
    sim.edit = take(left)
    judged(go_on(sim), 2, "invalid", "(there is no candidate)")


def test_text_order_is_not_the_order(tmp_path: Path, judged: Judge) -> None:
    """900 is newer than 1000 for who sorts names."""
    sim = one_kill(tmp_path)
    sim.branch.reverse()
    judged(go_on(sim), 2, "invalid", "took s00000002-a0000, older than s00000004-a0000")


def test_the_choice_must_be_listed_as_chosen(tmp_path: Path, judged: Judge) -> None:
    def edit(kind: str, thing: dict[str, Any]) -> None:
        if kind == "entry" and thing["kind"] == "choose" and thing["attempt"] == 1:
            thing["candidates"][0]["status"] = "not_examined"
        if kind == "entry" and thing["kind"] == "choose" and thing["attempt"] == 2:
            thing["candidates"] = []

    run = two_kills(tmp_path / "run", edit)
    judged(run.folder, 2, "invalid", "took s00000004-a0000 and lists it as not_examined",
           "took s00000006-a0001 and does not list it")  # fmt: skip


def test_newer_ones_must_be_listed(tmp_path: Path, judged: Judge) -> None:
    def edit(kind: str, thing: dict[str, Any]) -> None:
        if kind == "entry" and thing["kind"] == "choose":
            thing["candidates"] = thing["candidates"][1:]

    sim = one_kill(tmp_path)
    sim.edit = edit
    judged(go_on(sim, take=1), 2, "invalid", "older than s00000004-a0000, and does not list it")


def test_an_attempt_that_never_chose_passes_its_candidates_on(tmp_path: Path, judged: Judge) -> None:
    sim = one_kill(tmp_path)
    sim.fence()
    judged(go_on(sim), 2, "valid")


def test_an_attempt_that_trained_without_a_choice(tmp_path: Path, judged: Judge) -> None:
    sim = one_kill(tmp_path)
    sim.fence()
    sim.parent, sim.step = ref(sim.branch[-1]), 4
    sim.restore()
    sim.train(12)
    sim.finish()
    judged(sim.folder, 2, "invalid", "attempt 1 trained without recording what it started from")


def test_two_choices(tmp_path: Path, judged: Judge) -> None:
    sim = one_kill(tmp_path)
    sim.fence()
    sim.choose()
    sim.choose()
    sim.restore()
    sim.train(12)
    sim.finish()
    judged(sim.folder, 2, "invalid", "attempt 1 chose 2 times")


@pytest.mark.parametrize(
    ("change", "words"),
    [
        (
            {"name": "s00000002-a0000"},
            "restored s00000002-a0000 (step 4), the log chose s00000004-a0000 (step 4)",
        ),
        ({"name": None, "digest": None, "step": 0}, "restored nothing (step 0)"),
        ({"digest": "sha256:0"}, "rank 1 of attempt 1 restored"),
        ({"step": 5}, "restored s00000004-a0000 (step 5)"),
        ({"cursor": 40}, "restored cursor 40 beside optimizer step 4; the checkpoint has cursor 32"),
    ],
)
def test_what_a_rank_restored_is_what_was_chosen(
    tmp_path: Path, judged: Judge, change: dict[str, Any], words: str
) -> None:
    def edit(kind: str, thing: dict[str, Any]) -> None:
        if (
            kind == "event"
            and thing["event"] == "restored"
            and thing.get("rank") == 1
            and thing["attempt"] == 1
        ):
            thing.update(change)

    judged(two_kills(tmp_path / "run", edit).folder, 2, "invalid", words)


def test_a_start_from_nothing_begins_at_cursor_0(tmp_path: Path, judged: Judge) -> None:
    def edit(kind: str, thing: dict[str, Any]) -> None:
        if (
            kind == "event"
            and thing["event"] == "restored"
            and thing.get("rank") == 1
            and thing["attempt"] == 0
        ):
            thing["cursor"] = 8

    judged(
        two_kills(tmp_path / "run", edit).folder, 2, "invalid", "restored cursor 8 beside optimizer step 0"
    )


def test_the_supervisor_must_say_what_it_wrote(tmp_path: Path, judged: Judge) -> None:
    def edit(kind: str, thing: dict[str, Any]) -> None:
        if kind == "event" and thing["event"] == "chosen" and thing["attempt"] == 2:
            thing["name"] = "s00000004-a0000"

    judged(
        two_kills(tmp_path / "run", edit).folder,
        2,
        "invalid",
        "recorded the choice of s00000004-a0000, entry 9 says s00000006-a0001",
    )


def test_without_a_restart_it_is_not_judged(tmp_path: Path) -> None:
    sim = Simulation(tmp_path / "run")
    sim.start()
    sim.train(12)
    sim.finish()
    says(audit_run(sim.folder), 2, "not_judged", "nothing was restarted")


def test_attempt_0_need_not_say_that_it_started_from_nothing(tmp_path: Path, judged: Judge) -> None:
    sim = Simulation(tmp_path / "run", Settings(faults=[F0]))
    sim.parent = None
    sim.choose = lambda *choice: None  # type: ignore[method-assign]
    sim.start()
    del sim.choose
    sim.train(5)
    sim.kill(F0)
    folder = go_on(sim)
    judged(folder, 2, "valid")
    judged(folder, 6, "valid")


def test_events_of_no_attempt_are_no_evidence(tmp_path: Path, judged: Judge) -> None:
    sim = one_kill(tmp_path)
    worker = sim.of("rank", 0).history
    sim.say(worker, "restored", None, rank=0, name="x", digest="y", step=99, cursor=0, parts={})
    sim.say(worker, "step", None, rank=0, step=99, lr=[], ids="", skipped=False)
    folder = go_on(sim)
    judged(folder, 2, "valid")
    judged(folder, 8, "valid")


def unreadable(monkeypatch: pytest.MonkeyPatch, *names: str) -> None:
    """Reading these files fails for a reason that has nothing to do with their bytes."""
    original_map, original_read = read_files.mapped, read_store.read_regular

    def fail(path: Path) -> None:
        if path.name in names:
            raise OSError(errno.EMFILE, "Too many open files")

    def mapped(path: Path) -> memoryview:
        fail(path)
        return original_map(path)

    def read_bytes(path: Path) -> bytes:
        fail(path)
        return original_read(path)

    monkeypatch.setattr(read_files, "mapped", mapped)
    monkeypatch.setattr(read_store, "read_regular", read_bytes)


SHARDS = ("s00000004-a0000-r0000.safetensors", "s00000004-a0000-r0001.safetensors")


@pytest.mark.parametrize("names", [SHARDS, ("s00000004-a0000.json",)])
@pytest.mark.parametrize("reject", [0, 1])
def test_what_cannot_be_read_proves_nothing(
    tmp_path: Path, judged: Judge, monkeypatch: pytest.MonkeyPatch, reject: int, names: tuple[str, ...]
) -> None:
    folder = go_on(one_kill(tmp_path), reject=reject)
    unreadable(monkeypatch, *names)
    judged(folder, 1, "unknown", "cannot be read: Too many open files")
    judged(folder, 2, "unknown", "cannot be read: Too many open files", names[0])


def test_a_log_entry_that_cannot_be_read(
    tmp_path: Path, judged: Judge, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder = go_on(one_kill(tmp_path))
    unreadable(monkeypatch, "00000003.json")
    judged(folder, 1, "unknown", "store/log/00000003.json cannot be read: Too many open files")
    judged(folder, 2, "unknown", "the commit log is not whole")


def test_attempt_0_has_nothing_to_choose(tmp_path: Path, judged: Judge) -> None:
    def edit(kind: str, thing: Any) -> None:
        if kind == "entry" and thing["kind"] == "choose" and thing["attempt"] == 0:
            thing["parent"] = {"name": "s00000002-a0000", "digest": "sha256:0", "step": 2}

    judged(
        two_kills(tmp_path / "run", edit).folder,
        2,
        "invalid",
        "attempt 0 chose s00000002-a0000, which is no candidate",
    )


def test_training_without_publishing_needs_a_choice_too(tmp_path: Path, judged: Judge) -> None:
    sim = one_kill(tmp_path)
    sim.fence()
    sim.parent, sim.step = ref(sim.branch[-1]), 4
    sim.restore()
    sim.train(5)
    sim.finish(finished=False)
    judged(sim.folder, 2, "invalid", "attempt 1 trained without recording what it started from")


@pytest.mark.parametrize("other", [{"attempt": 0}, {"name": "s00000008-a0000"}, {"ok": True}])
def test_another_refusal_is_no_evidence(tmp_path: Path, judged: Judge, other: dict[str, Any]) -> None:
    sim = one_kill(tmp_path)
    sim.recover(reject=1)
    refusal = {"attempt": 1, "name": "s00000004-a0000", "ok": False, **other}
    attempt = refusal.pop("attempt")
    sim.say(sim.of("rank", 0).history, "loaded", attempt, rank=0, reason="digest", bytes=0, **refusal)
    sim.retire(["s00000004-a0000"])
    sim.train(12)
    sim.finish()
    judged(sim.folder, 2, "unknown", "it was retired since")


def test_a_rank_did_not_accept_what_was_chosen(tmp_path: Path, judged: Judge) -> None:
    def edit(kind: str, thing: Any) -> None:
        if kind == "event" and (thing["event"], thing["attempt"], thing.get("rank")) == ("loaded", 1, 1):
            thing.update(ok=False, reason="has another digest")

    judged(two_kills(tmp_path / "run", edit).folder, 2, "invalid", "attempt 1 (entry 5) took s00000004-a0000, though "
           "rank 1 did not accept it (has another digest)")  # fmt: skip


@pytest.mark.parametrize("status", ["rejected", "not_examined"])
def test_a_candidate_that_was_made_up(tmp_path: Path, judged: Judge, status: str) -> None:
    made_up = {"name": "s00000099-a0000", "digest": "sha256:0", "step": 99, "status": status, "reason": "made up"}

    def edit(kind: str, thing: Any) -> None:
        if kind == "entry" and (thing["kind"], thing["attempt"]) == ("choose", 2):
            thing["candidates"].insert(0, made_up)

    judged(two_kills(tmp_path / "run", edit).folder, 2, "invalid", "lists s00000099-a0000, which was no candidate")


def test_a_restore_without_a_choice_is_seen_before_any_step(tmp_path: Path, judged: Judge) -> None:
    sim = one_kill(tmp_path)
    sim.fence()
    sim.parent, sim.step = ref(sim.branch[-1]), 4
    sim.restore()
    sim.finish(finished=False)
    judged(sim.folder, 2, "invalid", "attempt 1 trained without recording what it started from")


def test_a_fresh_start_is_told_with_the_newest_three(tmp_path: Path, judged: Judge) -> None:
    sim = Simulation(tmp_path / "run", Settings(faults=[F0], keep=99, save_every=1))
    sim.start()
    sim.train(5)
    sim.kill(F0)
    judged(go_on(sim, take=9), 2, "invalid", "a fresh start over s00000005-a0000, s00000004-a0000 and s00000003-a0000, "
           "which were published")  # fmt: skip


def test_the_first_of_several_damages_is_told(tmp_path: Path, judged: Judge) -> None:
    other = {**DAMAGE, "id": "f6"}
    sim = one_kill(tmp_path, faults=(F0, DAMAGE, other))
    sim.damage(SHARD.replace("r0001", "r0000"), DAMAGE)
    sim.damage(SHARD, other)
    judged(go_on(sim, take=1), 2, "invalid", "it does not verify: store/shards/s00000004-a0000-r0000.safetensors has")


def test_an_outsider_is_told_beside_the_newest_candidate(tmp_path: Path, judged: Judge) -> None:
    sim = one_kill(tmp_path, faults=(F0, F1, DAMAGE))
    sim.damage(SHARD, DAMAGE)
    left = ref(sim.branch[1])
    sim.recover(reject=1)
    sim.train(5)
    sim.kill(F1)
    sim.edit = take(left)
    judged(go_on(sim), 2, "invalid", "attempt 2 chose s00000004-a0000", "the newest candidate is s00000004-a0001)")


def test_damage_by_an_earlier_attempts_fault_that_struck_after_the_choice(tmp_path: Path, judged: Judge) -> None:
    """Within one boot the instants decide, not the attempts."""
    sim = one_kill(tmp_path, faults=(F0, DAMAGE))
    sim.recover()
    sim.damage(SHARD, DAMAGE)
    sim.train(12)
    sim.finish()
    judged(sim.folder, 2, "valid")


def test_damage_in_another_boot_is_dated_by_its_attempt(tmp_path: Path, judged: Judge) -> None:
    sim = one_kill(tmp_path, faults=(F0, DAMAGE))
    sim.edit = lambda kind, thing: thing.update(boot="another") if kind == "receipt" else None
    sim.damage(SHARD, DAMAGE)
    judged(go_on(sim), 2, "invalid", "took s00000004-a0000, which did not verify")


def test_a_restart_that_was_killed_before_it_chose_is_judged(tmp_path: Path, judged: Judge) -> None:
    sim = one_kill(tmp_path)
    sim.fence()
    sim.finish(finished=False)
    judged(sim.folder, 2, "valid")


def test_the_first_attempt_begins_with_nothing_whether_it_says_so_or_not(tmp_path: Path, judged: Judge) -> None:
    sim = Simulation(tmp_path / "run")
    sim.parent = None
    sim.begin = lambda **_: (sim.fence(), sim.restore())  # type: ignore[assignment]
    sim.start()
    sim.train(12)
    sim.finish()
    judged(sim.folder, 2, "not_judged", "nothing was restarted")


# -- the check by itself, on evidence without files

OLD, NEW, LATER = checkpoint(2, 0), checkpoint(4, 0), checkpoint(6, 1)
TOOK, PASSED = note(NEW), note(OLD, "not_examined")


def killed() -> Entries:
    """Attempt 0 has published steps 2 and 4, and attempt 1 has begun."""
    return Entries().fence().choose(None).publish(2, 4).fence()


def found(entries: Entries, *events: Any, manifests: tuple[Manifest, ...] = (), **more: Any) -> tuple[str, str]:
    """Verdict and witness, where everything published is there and whole but for what is named."""
    known = manifests or tuple(complete(checkpoint(step, 0)) for step in (2, 4))
    lost, unreadable, receipts, files = (more.get(key, ()) for key in ("lost", "unreadable", "receipts", "files"))
    store = stored(*known, lost=lost, unreadable=unreadable)
    finding = newest.check(evidence(entries, files, receipts, begun=begun(), events=events, **store))
    return finding.verdict.value, finding.witness


def damage(path: str | None, attempt: int = 0, kind: str = "damage", **more: Any) -> Receipt:
    """The receipt of one."""
    return receipt(kind, "store", None, attempt, point=None, hit=None, path=path, **more)


def restored(of: Ref | None, attempt: int, rank: int = 0, **changes: Any) -> Any:
    """What a rank says that it has restored, of a checkpoint whose parts all have the digest `d`."""
    name, digest, step = (None, None, 0) if of is None else (of.name, of.digest, of.step)
    parts = {} if of is None else {**complete(of).parts, **complete(of).ranks[0].parts}
    told = {"rank": rank, "name": name, "digest": digest, "step": step, "cursor": step * 8, "parts": parts,
            "state": {}, "microbatch": 0 if of is None else of.moment[1], **changes}  # fmt: skip
    return said(Restored(**told), attempt)


def test_the_newest_is_right_and_nothing_else_is_said() -> None:
    assert found(killed().choose(NEW, TOOK, PASSED), restored(None, 0), restored(NEW, 1)) == ("valid", "")


def test_an_attempt_0_that_published_need_not_have_chosen() -> None:
    assert found(Entries().fence().publish(2, 4).fence().choose(NEW, TOOK, PASSED)) == ("valid", "")


def test_an_attempt_0_that_says_what_it_chose_is_judged_without_a_restart() -> None:
    assert found(Entries().fence().choose(None)) == ("not_judged", "nothing was restarted")
    verdict, witness = found(Entries().fence().choose(OLD))
    assert verdict == "invalid"
    assert witness.startswith(f"attempt 0 chose {OLD.name}, which is no candidate")


def test_a_fence_alone_is_a_restart() -> None:
    assert found(killed()) == ("valid", "")


@pytest.mark.parametrize("published", [True, False])
def test_who_trains_after_a_restart_says_what_it_started_from(published: bool) -> None:
    words = "attempt 1 trained without recording what it started from"
    if published:
        assert found(killed().publish(6)) == ("invalid", words)
    else:
        verdict, witness = found(killed(), restored(NEW, 1))
        assert verdict == "invalid"
        assert witness.startswith(words)


def test_what_no_candidate_was_is_not_listed() -> None:
    log = killed().choose(NEW, note(LATER, "rejected", "digest"), TOOK, PASSED)
    assert found(log) == ("invalid", f"attempt 1 (entry 5) lists {LATER.name}, which was no candidate")


@pytest.mark.parametrize(
    ("listed", "words"),
    [
        ((), f"took {NEW.name} and does not list it"),
        ((note(NEW, "rejected", "digest"),), f"took {NEW.name} and lists it as rejected"),
    ],
)
def test_what_was_taken_is_listed_as_chosen(listed: tuple[Any, ...], words: str) -> None:
    assert found(killed().choose(NEW, *listed, PASSED)) == ("invalid", f"attempt 1 (entry 5) {words}")


def test_whoever_says_what_was_chosen_says_what_the_log_has() -> None:
    def told(seq: int, name: str | None, digest: str | None) -> Any:
        return said(Chosen(name, digest, 0, seq), 1, "supervisor.jsonl")

    log = killed().choose(NEW, TOOK, PASSED)
    assert found(log, told(5, NEW.name, NEW.digest), told(1, None, None)) == ("valid", "")
    for name, digest in ((OLD.name, OLD.digest), (None, None), (NEW.name, OLD.digest)):
        words = f"supervisor.jsonl recorded the choice of {name}, entry 5 says {NEW.name}"
        assert found(log, told(5, name, digest)) == ("invalid", words)
    assert found(log, told(1, NEW.name, NEW.digest)) == (
        "invalid", f"supervisor.jsonl recorded the choice of {NEW.name}, entry 1 says None",
    )  # fmt: skip


def test_a_choice_of_what_was_published_again_names_the_branch_that_first_had_it() -> None:
    """Attempts 0 and 1 publish the same step 4 under one name; attempt 3 goes back behind the choice of attempt 2."""
    log = killed().choose(OLD, note(NEW, "rejected", "digest"), note(OLD))
    log.made.append(replace(log.made[3], seq=len(log.made), attempt=1))
    log.fence().choose(OLD, note(NEW, "rejected", "digest"), note(OLD)).fence().choose(NEW)
    _, witness = found(log, receipts=(damage(f"store/{shard(NEW)}"),), lost=(shard(NEW),))
    assert "attempt 3 chose s00000004-a0000, which is no candidate: it lies on a branch of attempt 0" in witness


@pytest.mark.parametrize(
    ("path", "retired", "words"),
    [
        (shard(NEW), False, f"took {NEW.name}, which does not verify: store/{shard(NEW)} is missing"),
        (shard(NEW), True, ""),
        (segment(NEW), True, "nothing says since when"),
        (f"manifests/{NEW.name}.json", True, "which does not verify: store/manifests"),
    ],
)
def test_of_what_was_retired_later_only_shards_may_be_gone(path: str, retired: bool, words: str) -> None:
    log = killed().choose(NEW, TOOK, PASSED)
    log.made.append(Retire(6, 1, (NEW.name if retired else OLD.name,)))
    verdict, witness = found(log, lost=(path,))
    assert verdict == ("valid" if not words else "unknown" if path == segment(NEW) else "invalid")
    assert words in witness


@pytest.mark.parametrize(
    ("kind", "of", "judgement"),
    [("damage", NEW, "valid"), ("damage", OLD, "invalid"), ("stray", NEW, "invalid")],
)
def test_only_a_receipt_of_its_damage_says_that_a_whole_one_was_rejected_rightly(
    kind: str, of: Ref, judgement: str
) -> None:
    log = killed().choose(OLD, note(NEW, "rejected", "digest"), note(OLD))
    for path in (shard(of), f"store/{shard(of)}", segment(of), f"manifests/{of.name}.json"):
        verdict, witness = found(log, receipts=(damage(path, kind=kind),))
        assert verdict == judgement
        assert ("the newer one verifies and no receipt announces damage" in witness) == (judgement == "invalid")


def test_a_receipt_of_no_file_explains_no_rejection() -> None:
    log = killed().choose(OLD, note(NEW, "rejected", "digest"), note(OLD))
    assert found(log, receipts=(damage(None),))[0] == "invalid"


@pytest.mark.parametrize(("after_ns", "judgement"), [(-1, "invalid"), (0, "valid"), (1, "valid")])
def test_damage_is_a_fault_of_the_choice_that_came_after_it(after_ns: int, judgement: str) -> None:
    """Within one boot the clock tells."""
    log = killed().choose(NEW, TOOK, PASSED)
    chosen = said(Chosen(NEW.name, NEW.digest, 4, 5), 1, "supervisor.jsonl", t_ns=1000)
    struck = damage(shard(NEW), attempt=1, t_ns=1000 + after_ns)
    files = [recorded("supervisor", name="supervisor.jsonl", closed=True)]
    verdict, witness = found(log, chosen, receipts=(struck,), lost=(shard(NEW),), files=files)
    assert verdict == ("valid" if judgement == "valid" else "invalid"), witness


@pytest.mark.parametrize(("attempt", "judgement"), [(0, "invalid"), (1, "valid")])
def test_without_a_clock_damage_of_the_attempts_before_was_there(attempt: int, judgement: str) -> None:
    log = killed().choose(NEW, TOOK, PASSED)
    gone = (replace(damage(shard(NEW), attempt), after=None),)
    missing = complete(NEW)
    store = stored(complete(OLD), missing)
    file = store["seen"][shard(NEW)]
    store["seen"][shard(NEW)] = replace(file, digest="other")
    receipts = (replace(gone[0], after="other"),)
    assert newest.check(evidence(log, receipts=receipts, begun=begun(), **store)).verdict == judgement


def test_damage_of_unknown_date_is_a_fault_of_the_choice_unless_every_rank_restored_what_was_saved() -> None:
    log = killed().choose(NEW, TOOK, PASSED)
    two = (complete(OLD), complete(NEW, world=2))
    both = [restored(NEW, 1, rank) for rank in (0, 1)]
    other = restored(NEW, 1, 1, parts={**both[0].what.parts, "model": "another"})
    for events, judgement in ((both, "unknown"), (both[:1], "invalid"), ([both[0], other], "invalid"), ([], "invalid")):
        verdict, witness = found(log, *events, manifests=two, lost=(shard(NEW, 1),))
        assert verdict == judgement, witness
    verdict, _ = found(log, manifests=two, unreadable=(shard(NEW, 1),))
    assert verdict == "unknown"


def test_a_rank_that_did_not_accept_what_was_taken_is_named() -> None:
    log = killed().choose(NEW, TOOK, PASSED)
    events = [said(Loaded(1, NEW.name, False, "digest"), 1), said(Loaded(0, NEW.name, True, ""), 1),
              said(Loaded(0, OLD.name, False, "digest"), 1), said(Loaded(0, NEW.name, False, "digest"), 0)]  # fmt: skip
    words = f"attempt 1 (entry 5) took {NEW.name}, though rank 1 did not accept it (digest)"
    assert found(log, *events) == ("invalid", words)


INSIDE = checkpoint(4, 0, 3)


@pytest.mark.parametrize(
    ("change", "words"),
    [
        ({}, ""),
        ({"microbatch": 2}, f"restored 2 microbatches of the update after step 4, {INSIDE.name} holds 3"),
        ({"cursor": 33}, "restored cursor 33 beside optimizer step 4; the checkpoint has cursor 32"),
        ({"step": 3}, f"restored {INSIDE.name} (step 3), the log chose {INSIDE.name} (step 4)"),
        ({"name": None}, f"restored nothing (step 4), the log chose {INSIDE.name} (step 4)"),
        ({"digest": "sha256:x"}, f"restored {INSIDE.name} (step 4), the log chose {INSIDE.name} (step 4)"),
    ],
)
def test_what_a_rank_restored_inside_a_step(change: dict[str, Any], words: str) -> None:
    log = Entries().fence().choose(None).publish(4, microbatch=3).fence().choose(INSIDE, note(INSIDE))
    events = restored(None, 0), restored(INSIDE, 1, **change)
    assert found(log, *events, manifests=(complete(INSIDE),)) == (
        ("invalid", f"rank 0 of attempt 1 {words}") if words else ("valid", "")
    )


def test_a_start_from_nothing_has_nothing_of_an_update() -> None:
    log = Entries().fence().choose(None)
    for change, words in (
        ({"microbatch": 1}, "restored 1 microbatches of the update after step 0, a start from nothing holds 0"),
        ({"cursor": 1}, "restored cursor 1 beside optimizer step 0; the checkpoint has cursor 0"),
        ({"step": 1}, "restored nothing (step 1), the log chose nothing (step 0)"),
    ):
        assert found(log, restored(None, 0, 1, **change)) == ("invalid", f"rank 1 of attempt 0 {words}")


def test_a_cursor_is_not_held_against_another_manifest_than_the_one_that_was_chosen() -> None:
    log = killed().choose(NEW, TOOK, PASSED)
    store = stored(complete(OLD), complete(NEW))
    for name, seen in list(store["manifests"].items()):
        store["manifests"][name] = replace(seen, digest="sha256:other") if name == NEW.name else seen
    finding = newest.check(evidence(log, begun=begun(), events=[restored(NEW, 1, cursor=5)], **store))
    assert "is not the manifest that entry 3 published" in finding.witness
    assert "cursor" not in finding.witness
