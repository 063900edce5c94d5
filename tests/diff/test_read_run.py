"""Run folders: what the reader makes of history and ledger, and what a comparison of two of them says."""

from __future__ import annotations

import shutil
from pathlib import Path
from typing import Any

import audit_files as files
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from simulated_run import Settings, Simulation, two_kills

from chaos.diff.command import diff
from chaos.diff.read_run import read_run
from chaos.diff.trace import TraceError

OTHER = {"loss": (700.0).hex(), "lr": [(700.0).hex()], "ids": "x", "skipped": True}
FIELDS = [*OTHER, "state"]


def clean(folder: Path, edit: Any = lambda kind, thing: None, steps: int = 12) -> Path:
    simulation = Simulation(folder, Settings(steps=steps), edit)
    simulation.start()
    simulation.train(steps)
    simulation.finish()
    return folder


def test_a_run_is_read_whole(tmp_path: Path) -> None:
    two_kills(tmp_path / "run")
    side = read_run(tmp_path / "run")
    trace = side.trace
    assert side.problems == ()
    assert (trace.ranks, trace.global_batch, trace.rows, trace.target_step) == (2, 8, 50, 12)
    assert [(s.attempt, s.rank, s.step, s.checkpoint) for s in trace.starts] == [
        (0, 0, 0, None), (0, 1, 0, None), (1, 0, 4, "s00000004-a0000"), (1, 1, 4, "s00000004-a0000"),
        (2, 0, 6, "s00000006-a0001"), (2, 1, 6, "s00000006-a0001"),
    ]  # fmt: skip
    steps = [(r.attempt, r.step) for r in trace.records if r.rank == 0]
    assert steps == [*((0, s) for s in range(1, 6)), *((1, s) for s in range(5, 9)), *((2, s) for s in range(7, 13))]
    known = {(r.attempt, r.step): r.ids for r in trace.records if r.rank == 1}
    assert known[0, 4] is not None
    assert len(known[0, 4]) == 4
    assert known[0, 5] is None  # killed before its save: only the digest is left
    assert side.settings["seed"] == "7"
    assert side.metadata["path"] == str(tmp_path / "run")


def test_a_killed_run_equals_an_uninterrupted_one(tmp_path: Path) -> None:
    two_kills(tmp_path / "killed")
    result = diff(str(clean(tmp_path / "clean")), str(tmp_path / "killed"))
    report = result.report
    assert (result.exit_status, report["result"]) == (0, "no difference")
    assert (report["compared"]["records"], report["compared"]["starts"]) == (30, 6)
    assert set(report["metadata"]) >= {"path", "pids", "times"}
    assert report["settings"] == {}


def test_the_one_with_fewer_attempts_is_held_against(tmp_path: Path) -> None:
    two_kills(tmp_path / "killed")
    report = diff(str(tmp_path / "killed"), str(clean(tmp_path / "clean"))).report
    assert report["swapped"]
    assert report["a"]["path"] == str(tmp_path / "clean")
    assert report["compared"]["records"] == 30


@pytest.mark.parametrize("attempt", [0, 1, 2])
def test_a_difference_in_any_attempt_is_found(tmp_path: Path, attempt: int) -> None:
    def edit(kind: str, thing: Any) -> None:
        if kind == "event" and thing["event"] == "step" and (thing["attempt"], thing["step"]) == (attempt, 5 + attempt):
            thing["loss"] = (9.0).hex()

    two_kills(tmp_path / "killed", edit)
    result = diff(str(clean(tmp_path / "clean")), str(tmp_path / "killed"))
    assert result.exit_status == 1
    first = result.report["first"]
    assert (first["attempt"], first["step"], first["where"]) == (attempt, 5 + attempt, "update")
    assert [d["part"] for d in first["differences"]] == ["loss"]


@pytest.mark.parametrize("lost", ["shard", "store"])
def test_without_a_store_that_can_be_read_the_difference_is_found_but_not_its_size(tmp_path: Path, lost: str) -> None:
    def edit(kind: str, thing: Any) -> None:
        if kind == "event" and thing["event"] == "step" and thing["step"] == 12:
            thing["state"] = {**thing["state"], "model": "x"}

    a, b = clean(tmp_path / "a"), clean(tmp_path / "b", edit)
    assert diff(str(a), str(b)).report["magnitude"]["step"] == 12
    if lost == "store":
        shutil.rmtree(b / "store")
    else:
        for path in (b / "store" / "shards").iterdir():
            path.write_bytes(path.read_bytes()[:-1])
    result = diff(str(a), str(b))
    assert (result.exit_status, result.report["first"]["step"], result.report["magnitude"]) == (1, 12, None)


def test_samples_that_were_prefetched_and_not_applied_are_named(tmp_path: Path) -> None:
    """Attempt 1 goes on 4 samples too far; the ids come from the ledger's segments."""

    def edit(kind: str, thing: Any) -> None:
        if kind == "consume" and thing["attempt"] == 1:
            thing["sample_id"] = np.array([simulation.planned(int(p) + 4) for p in thing["position"]])

    simulation = Simulation(tmp_path / "ahead", Settings(), edit)
    simulation.start()
    simulation.train(5)
    simulation.recover()
    simulation.train(12)
    simulation.finish()
    result = diff(str(clean(tmp_path / "clean")), str(tmp_path / "ahead"))
    first = result.report["first"]
    assert (first["attempt"], first["step"], first["earliest_update"]) == (1, 5, 5)
    (cause,) = first["causes"][0]
    assert cause["kind"] == "cursor ahead"
    assert "ahead by 4 samples" in cause["text"]


def test_a_ledger_that_is_not_what_the_rank_recorded_is_no_evidence(tmp_path: Path) -> None:
    def edit(kind: str, thing: Any) -> None:
        if kind == "rows" and (thing["rank"], int(thing["step"][0])) == (1, 4):
            thing["sample_id"] = thing["sample_id"][::-1].copy()

    side = read_run(clean(tmp_path / "odd", edit))
    assert "other samples for step 5 than rank 1 recorded" in side.problems[0]
    result = diff(str(clean(tmp_path / "clean")), str(tmp_path / "odd"))
    assert (result.exit_status, result.report["result"]) == (2, "could not compare")


def test_missing_evidence_is_never_the_same(tmp_path: Path) -> None:
    run = clean(tmp_path / "run")
    other = clean(tmp_path / "cut")
    worker = next(p for p in sorted((other / "history").glob("worker-*.jsonl")) if b'"step":12' in p.read_bytes())
    lines = worker.read_bytes().splitlines(keepends=True)
    place = next(i for i, line in enumerate(lines) if b'"event":"step"' in line and b'"step":7' in line)
    files.rechain(worker, [body for i, body in enumerate(files.bodies(worker)) if i != place])
    result = diff(str(run), str(other))
    assert result.exit_status == 2
    assert "recorded step 8 where step 7 was due" in result.report["problems"][0]
    worker.write_bytes(b"".join(lines[:place]))  # cut at a line: one rank's records end early
    assert "recorded steps up to 6, others up to 12" in diff(str(run), str(other)).report["problems"][0]
    worker.write_bytes(b"".join([*lines[:place], lines[place].replace(b"0x1", b"0x0"), *lines[place + 1 :]]))
    assert "does not continue the chain" in diff(str(run), str(other)).report["problems"][0]


@pytest.fixture(scope="module")
def reference(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return clean(tmp_path_factory.mktemp("reference") / "run")


@settings(max_examples=15, deadline=None)
@given(step=st.integers(1, 12), rank=st.integers(0, 1), field=st.sampled_from(FIELDS))
def test_any_changed_record_is_found_at_its_step(
    reference: Path, tmp_path_factory: pytest.TempPathFactory, step: int, rank: int, field: str
) -> None:
    def edit(kind: str, thing: Any) -> None:
        if kind == "event" and thing["event"] == "step" and (thing["step"], thing["rank"]) == (step, rank):
            thing[field] = {**OTHER, "state": {**thing["state"], "model": "x"}}[field]

    report = diff(str(reference), str(clean(tmp_path_factory.mktemp("run") / "b", edit))).report
    assert report["result"] == "different"
    assert (report["first"]["step"], report["first"]["differences"][0]["ranks"]) == (step, [rank])
    assert len(report["first"]["differences"]) == 1


@pytest.mark.parametrize(("part", "message"), [("history", "does not say what was run"), ("steps", "records no step")])
def test_what_cannot_be_read_as_a_run(tmp_path: Path, part: str, message: str) -> None:
    def edit(kind: str, thing: Any) -> None:
        if part == "steps" and kind == "event" and thing["event"] == "step":
            thing["drop"] = True

    run = clean(tmp_path / "run", edit)
    if part == "history":
        for path in (run / "history").glob("*.jsonl"):
            path.unlink()
    with pytest.raises(TraceError, match=message):
        read_run(run)
