"""Invariant 4: parts of two moments, parts that are missing, and live states that are not what was saved."""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from audit_files import bodies, rechain
from evidence_by_hand import with_events
from judging import Judge
from simulated_run import F0, Edit, Settings, Simulation, one_kill, two_kills

from chaos.audit import moment
from chaos.audit.events import Event, Restored, SaveDue, StepDone
from chaos.audit.evidence import Evidence, FileSeen, Manifest
from chaos.audit.read_run import read_evidence

NAME = "s00000004-a0000"


def on_shard(change: Any, rank: int = 1) -> Edit:
    """Changes the shard of one rank of NAME before it is digested and sealed."""
    return lambda kind, thing: (
        change(thing) if kind == "shard" and (thing["step"], thing["rank"]) == (4, rank) else None
    )


def on_manifest(change: Any) -> Edit:
    return lambda kind, thing: change(thing) if kind == "manifest" and thing["name"] == NAME else None


def progress(**changes: Any) -> Any:
    def change(thing: dict[str, Any]) -> None:
        value = json.loads(thing["texts"]["progress"])
        thing["texts"]["progress"] = json.dumps({**value, **changes})

    return change


@pytest.mark.parametrize(
    ("change", "words"),
    [
        (lambda t: t["meta"].update(attempt="1"), "the shard of rank 1 is of attempt 1, the manifest of 0"),
        (lambda t: t["meta"].update(step="5"), "the shard of rank 1 is of step 5, the manifest of 4"),
        (lambda t: t["meta"].update(cursor="40"), "the shard of rank 1 is of cursor 40, the manifest of 32"),
        (lambda t: t["meta"].update(run="other"), "is of run other"),
        (lambda t: t["meta"].pop("world"), "is of world None, the manifest of 2"),
        (lambda t: t["meta"].update(format="x/1"), "is of format x/1"),
        (progress(step=5), "the progress of rank 1 is at step 5, the manifest at 4"),
        (progress(cursor=40), "the progress of rank 1 is at cursor 40, the manifest at 32"),
        (progress(updates=3), "has 3 updates and 0 skipped ones, not 4"),
        (progress(skipped=None), "has 4 updates and None skipped ones"),
        (lambda t: t["texts"].update(progress="{"), "is at step None"),
        (lambda t: t["texts"].update(progress="[1]"), "is at step None"),
        (lambda t: t["texts"].update(scheduler='{"last_epoch": 5}'),
         "the scheduler of rank 1 has seen 5 steps at step 4, in s00000002-a0000 2 at step 2"),
        (lambda t: t["texts"].pop("rng.python"), "the shard of rank 1 has no part rng.python"),
        (lambda t: t["texts"].update(optimizer="{}"), "the shards hold 2 different optimizer settings"),
        (lambda t: t["mine"].update({"model/p0": np.zeros(4, np.float32)}),
         "tensor model/p0 is in the shards of ranks 0 and 1, it must be in one"),
        (lambda t: t["mine"].update({"optimizer/p1/step": np.array(5, np.float32)}),
         "optimizer/p1/step counts 5 updates, 3 more than in s00000002-a0000, 2 updates before"),
    ],
)  # fmt: skip
def test_a_shard_of_another_moment(tmp_path: Path, judged: Judge, change: Any, words: str) -> None:
    judged(two_kills(tmp_path / "run", on_shard(change), keep=99).folder, 4, "invalid", NAME, words)


def test_a_counter_that_holds_more_than_a_number_is_none(tmp_path: Path, judged: Judge) -> None:
    def vector(thing: dict[str, Any]) -> None:
        thing["shared"]["optimizer/p1/step"] = thing["mine"]["optimizer/p1/step"] = np.zeros(2, np.float32)

    def edit(kind: str, thing: Any) -> None:
        if kind == "shard":
            thing["shared"]["optimizer/p1/step"] = np.zeros(2, np.float32)
            if thing["rank"] == 1:
                vector(thing)
        if kind == "event" and thing["event"] == "restored":
            thing.get("parts", {}).pop("optimizer", None)

    witness = judged(two_kills(tmp_path / "run", edit).folder, 4, "invalid")
    assert "counts" not in witness


@pytest.mark.parametrize(
    ("change", "words"),
    [
        (lambda m: m["tensors"].update({"model/p1": "xxh3-128:0"}), "tensor model/p1 in the shard of rank"),
        (lambda m: m["tensors"].update({"model/p2": "xxh3-128:0"}), "tensor model/p2 is in no shard"),
        (
            lambda m: m["parts"].update(model="xxh3-128:0"),
            "the digest of part model is not that of its tensors",
        ),
        (
            lambda m: m["parts"].update(optimizer="x"),
            "part optimizer, computed from the shards, is not the one",
        ),
        (lambda m: m["ranks"][1]["parts"].update(scheduler="x"), "part scheduler of rank 1 is not the one"),
        (
            lambda m: m["ranks"][0]["parts"].update(buffers="x"),
            "the digest of part buffers of rank 0 is not that",
        ),
        (
            lambda m: m["ranks"][0]["tensors"].update({"rng/torch": "x"}),
            "tensor rng/torch of rank 0 is not the one",
        ),
        (
            lambda m: m["ranks"][0]["parts"].update({"rng.cuda": "x"}),
            "part rng.cuda of rank 0 is not the one",
        ),
        (lambda m: m.update(cursor=33), "cursor 33 does not belong to step 4 (batch 8)"),
    ],
)
def test_a_manifest_that_does_not_fit_its_shards(
    tmp_path: Path, judged: Judge, change: Any, words: str
) -> None:
    judged(two_kills(tmp_path / "run", on_manifest(change), keep=99).folder, 4, "invalid", NAME, words)


@pytest.mark.parametrize(("key", "value"), [("attempt", 1), ("step", 5), ("rank", 0), ("run", "other")])
def test_a_ledger_segment_of_another_moment(tmp_path: Path, judged: Judge, key: str, value: Any) -> None:
    def edit(kind: str, thing: Any) -> None:
        if kind == "segment" and (thing["meta"]["step"], thing["meta"]["rank"]) == (4, 1):
            thing["meta"][key] = value

    judged(
        two_kills(tmp_path / "run", edit).folder,
        4,
        "invalid",
        f"the ledger segment of rank 1 is of {key} {value}",
    )


def test_retired_checkpoints_are_judged_by_their_manifest(tmp_path: Path, judged: Judge) -> None:
    def edit(kind: str, thing: Any) -> None:
        if kind == "manifest" and thing["step"] == 2:
            thing["parts"]["model"] = "x"

    judged(
        two_kills(tmp_path / "run", edit).folder, 4, "invalid", "s00000002-a0000: the digest of part model"
    )


def test_the_number_of_ranks_is_that_of_the_run(tmp_path: Path, judged: Judge) -> None:
    def edit(kind: str, thing: Any) -> None:
        if kind == "event" and thing["event"] == "run":
            thing["ranks"] = 3

    judged(two_kills(tmp_path / "run", edit).folder, 4, "invalid", "is of 2 ranks, the run has 3")


def on_restored(change: Any, attempt: int = 1, rank: int = 1) -> Edit:
    def edit(kind: str, thing: Any) -> None:
        if (
            kind == "event"
            and thing["event"] == "restored"
            and (thing["attempt"], thing.get("rank")) == (attempt, rank)
        ):
            change(thing)

    return edit


@pytest.mark.parametrize(
    ("change", "words"),
    [
        (lambda e: e["parts"].update({"rng.numpy": "x"}),
         f"rank 1 of attempt 1 restored {NAME}, but its live rng.numpy is not the manifest's"),
        (lambda e: e["parts"].update(scheduler="x", buffers="y"),
         "its live buffers and scheduler are not the manifest's"),
        (lambda e: e["parts"].pop("scaler"), "its live scaler is not"),
        (lambda e: e["parts"].update(optimizer="x"),
         "the ranks of attempt 1 began with different states of part optimizer"),
        (lambda e: e.update(drop=True), "rank 1 of attempt 1 trained before it digested what it had restored"),
    ],
)  # fmt: skip
def test_the_live_state_after_a_restore(tmp_path: Path, judged: Judge, change: Any, words: str) -> None:
    judged(two_kills(tmp_path / "run", on_restored(change)).folder, 4, "invalid", words)


def test_ranks_that_start_from_nothing_start_alike(tmp_path: Path, judged: Judge) -> None:
    edit = on_restored(lambda e: e["parts"].update(model="x"), attempt=0)
    judged(
        two_kills(tmp_path / "run", edit).folder,
        4,
        "invalid",
        "attempt 0 began with different states of part model",
    )


def test_a_lost_manifest_leaves_it_open(run: Simulation, judged: Judge) -> None:
    (run.folder / f"store/manifests/{NAME}.json").unlink()
    judged(run.folder, 4, "unknown", f"the manifest of {NAME} is lost")


def test_a_lost_shard_is_for_invariant_1(run: Simulation, judged: Judge) -> None:
    (run.folder / "store/shards/s00000012-a0002-r0001.safetensors").unlink()
    judged(run.folder, 4, "valid")
    run.damage("shards/s00000010-a0002-r0001.safetensors")
    judged(run.folder, 4, "valid")


def test_nothing_published_is_not_judged(tmp_path: Path, judged: Judge) -> None:
    sim = Simulation(tmp_path / "run")
    sim.start()
    sim.train(1)
    sim.finish(finished=False)
    judged(sim.folder, 4, "not_judged", "nothing was published")


def test_a_run_of_one_rank_has_one_shard_of_each_moment(tmp_path: Path, judged: Judge) -> None:
    sim = Simulation(tmp_path / "run", Settings(ranks=1))
    sim.start()
    sim.train(12)
    sim.finish()
    judged(sim.folder, 4, "valid")


def test_a_tensor_of_a_rank_that_the_manifest_does_not_name(tmp_path: Path, judged: Judge) -> None:
    def edit(kind: str, thing: Any) -> None:
        if kind == "manifest" and thing["step"] == 12:
            del thing["ranks"][1]["tensors"]["buffer/n"]

    judged(two_kills(tmp_path / "run", edit).folder, 4, "invalid",
           "s00000012-a0002: tensor buffer/n of rank 1 is not the one in the manifest")  # fmt: skip


def test_a_rank_that_said_what_it_had_restored_after_its_first_step(run: Simulation, judged: Judge) -> None:
    """Of the rank that was never killed: the line changes places with that of the first step after it."""
    path = run.procs[0].history.path
    lines = bodies(path)
    said = next(n for n, line in enumerate(lines) if (line["event"], line["attempt"]) == ("restored", 1))
    step = next(n for n in range(said, len(lines)) if lines[n]["event"] == "step")
    lines[said], lines[step] = lines[step], lines[said]
    rechain(path, lines)
    judged(run.folder, 4, "invalid", "rank 0 of attempt 1 trained before it digested what it had restored")


# -- the check by itself, on one run that is read once and altered a piece at a time

LAST = "s00000012-a0001"


@pytest.fixture(scope="module")
def whole(tmp_path_factory: pytest.TempPathFactory) -> Evidence:
    """A valid run of two ranks that keeps its best model, skips an update, and is killed once."""
    folder = tmp_path_factory.mktemp("moment") / "run"
    return read_evidence(one_kill(folder, keep=99, keep_best=True, skips=(3,)).folder)


@pytest.fixture(scope="module")
def inside(tmp_path_factory: pytest.TempPathFactory) -> Evidence:
    """A valid run with a checkpoint after every microbatch."""
    settings = Settings(faults=[F0], keep=99, save_every_microbatches=1)
    sim = Simulation(tmp_path_factory.mktemp("inside") / "run", settings)
    sim.start()
    sim.train(2)
    sim.kill(F0)
    sim.recover()
    sim.train(3)
    sim.finish(finished=False)
    return read_evidence(sim.folder)


def found(evidence: Evidence) -> tuple[str, str]:
    finding = moment.check(evidence)
    return finding.verdict.value, finding.witness


def with_what(evidence: Evidence, kind: type, attempt: int, rank: int, step: int, **changes: Any) -> Evidence:
    """What one event says, changed."""

    def change(event: Event[Any]) -> Event[Any]:
        here = (event.attempt, event.what.rank, event.what.step) == (attempt, rank, step)
        return replace(event, what=replace(event.what, **changes)) if here else event

    return with_events(evidence, kind, change)


def with_manifest(evidence: Evidence, name: str, change: Callable[[Manifest], Manifest]) -> Evidence:
    """Under the digest that it had."""
    seen = evidence.store.manifests[name]
    assert seen.manifest is not None
    manifests = {**evidence.store.manifests, name: replace(seen, manifest=change(seen.manifest))}
    return replace(evidence, store=replace(evidence.store, manifests=manifests))


def with_file(evidence: Evidence, path: str, change: Callable[[FileSeen], FileSeen]) -> Evidence:
    files = {**evidence.store.files, path: change(evidence.store.files[path])}
    return replace(evidence, store=replace(evidence.store, files=files))


def with_texts(evidence: Evidence, name: str, rank: int, **texts: str | None) -> Evidence:
    """Parts of a rank's shard, or `meta_…` of its metadata; its digest is as it was."""

    def change(seen: FileSeen) -> FileSeen:
        assert seen.shard is not None
        keys = {key.removeprefix("meta_") if key.startswith("meta_") else f"part.{key}": t for key, t in texts.items()}
        metadata = {**seen.shard.metadata, **keys}
        kept = {key: text for key, text in metadata.items() if text is not None}
        return replace(seen, shard=replace(seen.shard, metadata=kept))

    return with_file(evidence, f"shards/{name}-r{rank:04d}.safetensors", change)


def text_of(evidence: Evidence, name: str, rank: int, part: str) -> dict[str, Any]:
    shard = evidence.store.files[f"shards/{name}-r{rank:04d}.safetensors"].shard
    assert shard is not None
    value: dict[str, Any] = json.loads(shard.metadata[f"part.{part}"])
    return value


def test_whole_runs_are_valid(whole: Evidence, inside: Evidence) -> None:
    assert found(whole) == ("valid", "")
    assert found(inside) == ("valid", "")


def test_without_a_publication_there_is_nothing_to_judge(whole: Evidence) -> None:
    nothing = replace(whole, store=replace(whole.store, log=replace(whole.store.log, entries=())))
    assert moment.check(replace(nothing, history=replace(whole.history, by_kind={}))).verdict == "not_judged"


def test_gradients_that_no_history_describes_leave_it_open(inside: Evidence) -> None:
    lost = with_events(inside, SaveDue, lambda event: event if event.what.microbatch == 0 else None)
    verdict, witness = found(lost)
    assert verdict == "unknown"
    assert "s00000000-m0001-a0000: the history of rank 0 does not say what its partial gradients were" in witness


def test_live_parts_that_are_not_the_manifests(whole: Evidence) -> None:
    told = next(event for event in whole.history.by_kind[Restored] if event.attempt == 1 and event.what.rank == 0)
    altered = with_what(whole, Restored, 1, 0, 4, parts={**told.what.parts, "rng.numpy": "x"})
    words = "rank 0 of attempt 1 restored s00000004-a0000, but its live rng.numpy is not the manifest's"
    assert found(altered) == ("invalid", words)
    more = with_what(altered, Restored, 1, 0, 4, parts={**told.what.parts, "rng.numpy": "x", "scaler": "y"})
    assert found(more) == ("invalid", words.replace("rng.numpy is", "rng.numpy and scaler are"))


def test_live_parts_of_an_attempt_that_no_fence_began_are_held_against_nothing(whole: Evidence) -> None:
    added = [event for event in whole.history.by_kind[Restored] if event.attempt == 1]
    strange = [replace(event, attempt=9, what=replace(event.what, parts={})) for event in added]
    by_kind = {**whole.history.by_kind, Restored: [*whole.history.by_kind[Restored], *strange]}
    assert found(replace(whole, history=replace(whole.history, by_kind=by_kind))) == ("valid", "")


@pytest.mark.parametrize("part", ["model", "optimizer", "best"])
def test_ranks_begin_an_attempt_alike(whole: Evidence, part: str) -> None:
    told = next(event for event in whole.history.by_kind[Restored] if event.attempt == 0 and event.what.rank == 1)
    altered = with_what(whole, Restored, 0, 1, 0, parts={**told.what.parts, part: "x"})
    assert found(altered) == ("invalid", f"the ranks of attempt 0 began with different states of part {part}")


@pytest.mark.parametrize(("by", "early"), [(-1, False), (1, True)])
def test_a_rank_digests_what_it_restored_before_its_first_step(whole: Evidence, by: int, early: bool) -> None:
    first = next(e for e in whole.history.by_kind[StepDone] if e.attempt == 1 and e.what.rank == 0)
    altered = with_events(
        whole, Restored, lambda e: replace(e, n=first.n + by) if (e.attempt, e.what.rank) == (1, 0) else e
    )
    words = "rank 0 of attempt 1 trained before it digested what it had restored"
    assert found(altered) == (("invalid", words) if early else ("valid", ""))


def test_a_rank_of_which_nobody_knows_what_it_restored(whole: Evidence) -> None:
    lost = with_events(whole, Restored, lambda e: None if (e.attempt, e.what.rank) == (1, 1) else e)
    assert found(lost) == ("invalid", "rank 1 of attempt 1 trained before it digested what it had restored")


def test_what_another_file_says_was_restored_is_not_what_this_rank_did(whole: Evidence) -> None:
    moved = with_events(whole, Restored, lambda e: replace(e, file="x") if (e.attempt, e.what.rank) == (1, 1) else e)
    assert found(moved) == ("invalid", "rank 1 of attempt 1 trained before it digested what it had restored")


def test_the_record_is_a_part_of_it(whole: Evidence) -> None:
    altered = with_what(whole, StepDone, 1, 0, 7, skipped=True)
    assert "step 7 of attempt 1 on rank 0 skipped its update, and no finding says why" in found(altered)[1]


def test_checkpoints_beside_each_other_are_a_part_of_it(whole: Evidence) -> None:
    witness = found(with_texts(whole, LAST, 1, optimizer="null"))[1]
    assert f"{LAST}: part optimizer of rank 1 is empty" in witness


def test_the_progress_beside_the_record_is_a_part_of_it(whole: Evidence) -> None:
    told = text_of(whole, LAST, 0, "progress")
    witness = found(with_texts(whole, LAST, 0, progress=json.dumps({**told, "loss_count": 3})))[1]
    assert f"{LAST}: the progress of rank 0 has loss_count 3, it must be 12" in witness


def test_what_came_back_beside_what_was_recorded_is_a_part_of_it(whole: Evidence) -> None:
    told = next(event for event in whole.history.by_kind[Restored] if event.attempt == 1 and event.what.rank == 0)
    witness = found(with_what(whole, Restored, 1, 0, 4, state={**told.what.state, "model": "f" * 16}))[1]
    assert "s00000004-a0000: its model, restored by rank 0 of attempt 1, is not what that rank recorded" in witness


@pytest.mark.parametrize("change", [{"bytes": 1}, {"digest": "x"}, {"problem": "is torn"}])
def test_a_shard_that_is_damaged_is_no_evidence(whole: Evidence, change: dict[str, Any]) -> None:
    """Nor is anything that all shards together would have to hold."""
    altered = with_texts(whole, LAST, 1, meta_step="5", progress="{", optimizer=None)
    assert found(altered)[0] == "invalid"
    path = f"shards/{LAST}-r0001.safetensors"
    assert found(with_file(altered, path, lambda seen: replace(seen, **change))) == ("valid", "")


def test_metadata_of_a_shard_of_another_moment(whole: Evidence) -> None:
    for key, value in (("run", "x"), ("attempt", "0"), ("step", "4"), ("rank", "0"), ("world", "1"), ("cursor", "0"),
                       ("format", "x"), ("microbatch", "1")):  # fmt: skip
        assert f"{LAST}: the shard of rank 1 is of {key} {value}, the manifest of " in (
            found(with_texts(whole, LAST, 1, **{f"meta_{key}": value}))[1]
        )


def test_a_segment_of_another_moment(whole: Evidence) -> None:
    path = f"ledger/{LAST}-r0001.arrow"
    for key, value in (("run", "x"), ("attempt", 0), ("step", 4), ("rank", 0), ("microbatch", 1)):

        def change(seen: FileSeen, key: str = key, value: Any = value) -> FileSeen:
            assert seen.segment is not None
            meta = replace(seen.segment.meta, **{key: value})
            return replace(seen, segment=replace(seen.segment.part(0, seen.segment.rows), meta=meta))

        words = f"{LAST}: the ledger segment of rank 1 is of {key} {value}, the manifest of "
        verdict, witness = found(with_file(whole, path, change))
        assert (verdict, words in witness) == ("invalid", True)


def test_tensors_of_the_model_are_what_the_manifest_says_each_in_one_shard(whole: Evidence) -> None:
    name = "model/p0"
    home = next(rank for rank in (0, 1) if name in shard_of(whole, rank).shard.tensors)  # type: ignore[union-attr]
    tensor = shard_of(whole, home).shard.tensors[name]  # type: ignore[union-attr]
    for rank, changed, words in (
        (home, {name: replace(tensor, digest="x")}, f"tensor {name} in the shard of rank {home} is not the one in the"),
        (1 - home, {name: tensor}, f"tensor {name} is in the shards of ranks 0 and 1, it must be in one"),
    ):

        def change(seen: FileSeen, changed: dict[str, Any] = changed) -> FileSeen:
            assert seen.shard is not None
            return replace(seen, shard=replace(seen.shard, tensors={**seen.shard.tensors, **changed}))

        altered = with_file(whole, f"shards/{LAST}-r{rank:04d}.safetensors", change)
        assert f"{LAST}: {words}" in found(altered)[1]


def shard_of(evidence: Evidence, rank: int) -> FileSeen:
    return evidence.store.files[f"shards/{LAST}-r{rank:04d}.safetensors"]


def test_without_one_of_the_shards_only_the_others_are_judged(whole: Evidence) -> None:
    """A part of all shards together is not known then, and each rank's own is."""
    files = {path: seen for path, seen in whole.store.files.items() if path != f"shards/{LAST}-r0000.safetensors"}
    lost = replace(whole, store=replace(whole.store, files=files))
    assert found(lost) == ("valid", "")
    assert "the shard of rank 1 has no part rng.python" in found(with_texts(lost, LAST, 1, **{"rng.python": None}))[1]


@pytest.mark.parametrize("part", ["buffers", "rng.torch", "best.buffers"])
def test_parts_of_tensors_alone_follow_from_the_manifest(whole: Evidence, part: str) -> None:
    def change(manifest: Manifest) -> Manifest:
        first, second = manifest.ranks
        return replace(manifest, ranks=(first, replace(second, parts={**second.parts, part: "x"})))

    words = f"{LAST}: the digest of part {part} of rank 1 is not that of its tensors"
    assert words in found(with_manifest(whole, LAST, change))[1]


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({"step": 11}, "the progress of rank 1 is at step 11, the manifest at 12"),
        ({"cursor": 11}, "the progress of rank 1 is at cursor 11, the manifest at 96"),
        ({"updates": 12}, "the progress of rank 1 has 12 updates and 1 skipped ones, not 12"),
        ({"updates": 13}, "the progress of rank 1 has 13 updates and 1 skipped ones, not 12"),
        ({"updates": None}, "the progress of rank 1 has None updates and 1 skipped ones, not 12"),
        ({"skipped": None}, "the progress of rank 1 has 11 updates and None skipped ones, not 12"),
        ({"best_step": 11}, "is 0x1.5555555555555p-4 of step 11, but the lowest loss up to here is "),
        ({"best_metric": "0x1.0p-9"}, "is 0x1.0p-9 of step 12, but the lowest loss up to here is 0x1.5555555555555p-4"),
    ],
)
def test_counters_of_another_moment(whole: Evidence, changes: dict[str, Any], words: str) -> None:
    told = text_of(whole, LAST, 1, "progress")
    assert (told["updates"], told["skipped"]) == (11, 1)
    assert words in found(with_texts(whole, LAST, 1, progress=json.dumps({**told, **changes})))[1]


@pytest.mark.parametrize("changes", [{"step": 11}, {"metric": "0x1.0p-9"}, {"step": None}])
def test_a_best_model_of_another_step_than_its_metric(whole: Evidence, changes: dict[str, Any]) -> None:
    told = text_of(whole, LAST, 1, "best")
    altered = with_texts(whole, LAST, 1, best=json.dumps({**told, **changes}))
    step = changes.get("step", 12)
    assert f"{LAST}: the best model of rank 1 belongs to step {step}, its best metric to 12" in found(altered)[1]


def test_a_best_metric_is_not_judged_where_the_record_is_broken(whole: Evidence) -> None:
    lost = with_events(whole, StepDone, lambda e: None if (e.attempt, e.what.step) == (1, 8) else e)
    told = text_of(lost, LAST, 1, "progress")
    both = json.dumps({**told, "best_step": 11}), json.dumps({**text_of(lost, LAST, 1, "best"), "step": 11})
    witness = found(with_texts(lost, LAST, 1, progress=both[0], best=both[1]))[1]
    assert witness
    assert "the best metric of rank 1" not in witness
    assert "the best model of rank 1" not in witness
