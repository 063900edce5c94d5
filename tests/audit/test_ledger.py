"""Invariant 3 on whole runs: each planted fault of the data's order, and the words that name it."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from audit_files import bodies, rechain
from evidence_by_hand import with_events
from hypothesis import given, settings
from hypothesis import strategies as st
from judging import Judge, says
from plan_reference import sample_id
from simulated_run import F0, Edit, Settings, Simulation, two_kills

from chaos.audit import audit_run, ledger
from chaos.audit.coverage import cover
from chaos.audit.events import Event, Formed, StepDone
from chaos.audit.evidence import Evidence, Segment
from chaos.audit.plan_ahead import PlanAhead
from chaos.audit.read_run import read_evidence
from chaos.audit.segments import I64

B = 8


def plan(position: int) -> int:
    return sample_id(position, 50, 8, 2, 7)


def on_rows(attempt: int, step: int, rank: int, change: Any) -> Edit:
    """Changes what one rank's ledger says of one step; everything is sealed after it."""

    def edit(kind: str, thing: Any) -> None:
        if kind == "rows" and (thing["attempt"], int(thing["step"][0]), thing["rank"]) == (
            attempt,
            step,
            rank,
        ):
            change(thing)

    return edit


def on_consume(change: Any) -> Edit:
    """Changes what the forward pass consumed: ledger, contents and the recorded ids follow."""
    return lambda kind, thing: change(thing) if kind == "consume" else None


def columns(thing: dict[str, Any], index: Any) -> None:
    for name in ("position", "sample_id", "content", "step", "microbatch"):
        thing[name] = thing[name][index]


def test_the_ledger_of_a_run_over_two_epochs_is_valid(run: Simulation, judged: Judge) -> None:
    judged(run.folder, 3, "valid")


@pytest.mark.parametrize(("more", "asked"), [(0, True), (1, False)])
def test_of_a_long_run_the_samples_are_computed_ahead(
    more: int, asked: bool, run: Simulation, judged: Judge, monkeypatch: pytest.MonkeyPatch
) -> None:
    answers: list[I64 | None] = []
    answer = PlanAhead._answer

    def kept(ahead: PlanAhead, start: int, limit: int) -> I64 | None:
        answers.append(answer(ahead, start, limit))
        return answers[-1]

    monkeypatch.setattr(PlanAhead, "_answer", kept)
    monkeypatch.setattr(ledger, "WORTH", run.set.steps * B + more)  # samples of the run
    monkeypatch.setattr(ledger, "cover", partial(cover, window=16))
    judged(run.folder, 3, "valid")
    assert bool(answers) == asked
    assert not any(ids is None for ids in answers)


def test_what_was_computed_ahead_is_what_counts(
    run: Simulation, judged: Judge, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(PlanAhead, "_answer", lambda _, start, limit: np.zeros(limit - start, np.int64))
    monkeypatch.setattr(ledger, "WORTH", 1)
    monkeypatch.setattr(ledger, "cover", partial(cover, window=16))
    judged(run.folder, 3, "invalid", "the order differs from the plan")


def test_a_repeated_row(tmp_path: Path, judged: Judge) -> None:
    edit = on_rows(1, 5, 0, lambda t: columns(t, [0, 1, 1, 2, 3]))
    folder = two_kills(tmp_path / "run", edit).folder
    judged(folder, 3, "invalid", f"the sample at position 41 (ids {plan(41)}) was applied twice: at step 5 by "
           "attempt 1 and at step 5 by attempt 1", "rank 0 of attempt 1 recorded other samples for step 5")  # fmt: skip


def test_a_dropped_row(tmp_path: Path, judged: Judge) -> None:
    edit = on_rows(1, 5, 0, lambda t: columns(t, [0, 2, 3]))
    folder = two_kills(tmp_path / "run", edit).folder
    judged(folder, 3, "invalid", f"the sample at position 41 (ids {plan(41)}) was never applied in epoch 0: attempt 1 "
           "went on with position 42 at step 5; attempt 1 restored cursor 32 beside optimizer step 4")  # fmt: skip


def test_a_whole_steps_rows_of_a_rank_are_gone(tmp_path: Path, judged: Judge) -> None:
    edit = on_rows(1, 5, 1, lambda t: columns(t, []))
    judged(
        two_kills(tmp_path / "run", edit).folder,
        3,
        "invalid",
        "samples at positions 44–47",
        "were never applied",
    )


def test_two_swapped_rows(tmp_path: Path, judged: Judge) -> None:
    def swap(thing: dict[str, Any]) -> None:
        for name in ("sample_id", "content"):
            thing[name] = thing[name][[1, 0, 2, 3]]

    folder = two_kills(tmp_path / "run", on_rows(0, 2, 0, swap)).folder
    witness = judged(
        folder, 3, "invalid", "the order differs from the plan in epoch 0", "at step 2 attempt 0 consumed sample "
        f"{plan(17)} at position 16, the plan says {plan(16)} (2 samples in all)",
    )  # fmt: skip
    assert "content" not in witness


def test_exchanged_contents(tmp_path: Path, judged: Judge) -> None:
    def exchange(thing: dict[str, Any]) -> None:
        thing["content"] = thing["content"][[1, 0, 2, 3]]

    folder = two_kills(tmp_path / "run", on_rows(0, 2, 0, exchange)).folder
    witness = judged(folder, 3, "invalid", f"the content of sample {plan(16)}, consumed at step 2 by attempt 0",
                     "(position 16), is not that of the dataset's row (2 samples in all)")  # fmt: skip
    assert "plan" not in witness


def test_right_ids_but_rows_of_another_shard(tmp_path: Path, judged: Judge) -> None:
    """The reader is off by one file: every content is another row's."""

    def edit(kind: str, thing: Any) -> None:
        if kind == "rows" and thing["attempt"] == 1:
            thing["content"] = sim.digests[(thing["sample_id"] + 24) % 50]

    sim = Simulation(tmp_path / "run", Settings(faults=[F0]), edit)
    sim.start()
    sim.train(5)
    sim.kill(F0)
    sim.recover()
    sim.train(12)
    sim.finish()
    judged(sim.folder, 3, "invalid", f"the content of sample {plan(32)}, consumed at step 4 by attempt 1",
           "(64 samples in all)")  # fmt: skip


def test_the_last_batch_runs_again(tmp_path: Path, judged: Judge) -> None:
    """The cursor was saved before the step's increment."""

    def edit(kind: str, thing: Any) -> None:
        if kind == "consume" and thing["attempt"] == 1:
            thing["position"] = thing["position"] - B
            thing["sample_id"] = np.array([plan(int(p)) for p in thing["position"]])
        if kind == "event" and thing["event"] == "restored" and thing["attempt"] == 1 and "cursor" in thing:
            thing["cursor"] -= B

    folder = two_kills(tmp_path / "run", edit).folder
    witness = judged(
        folder, 3, "invalid", f"samples at positions 24–31 (ids {plan(24)}, {plan(25)}, {plan(26)}, …) were applied "
        "twice: at step 3 by attempt 0 and at step 4 by attempt 1; attempt 1 restored cursor 24 beside optimizer "
        "step 4",
        "step 4 of attempt 1 consumed position 24", "step 4 has positions 32–39",
    )  # fmt: skip
    assert witness.index("applied twice") < witness.index("never applied")


def test_the_cursor_counted_what_was_prefetched(tmp_path: Path, judged: Judge) -> None:
    def edit(kind: str, thing: Any) -> None:
        if kind == "consume" and thing["attempt"] == 1:
            thing["position"] = thing["position"] + 3 * B
            thing["sample_id"] = np.array([plan(int(p)) for p in thing["position"]])

    folder = two_kills(tmp_path / "run", edit).folder
    judged(folder, 3, "invalid", "samples at positions 32–47", "were never applied in epoch 0: attempt 2 went on with "
           "position 48 at step 6")  # fmt: skip


def test_rows_beyond_the_cursor(tmp_path: Path, judged: Judge) -> None:
    def edit(kind: str, thing: Any) -> None:
        if kind == "consume" and int(thing["step"][0]) == 11:
            thing["position"] = thing["position"] + B
            thing["sample_id"] = np.array([plan(int(p)) for p in thing["position"]])

    folder = two_kills(tmp_path / "run", edit).folder
    judged(folder, 3, "invalid", "samples at positions 88–95", "step 11 of attempt 2 consumed position 96",
           "outside of 0–95", "(8 rows in all)")  # fmt: skip


def test_the_data_restarts_at_0(tmp_path: Path, judged: Judge) -> None:
    def restart(thing: Any) -> None:
        if thing["attempt"] == 1:
            thing["position"] = thing["position"] - 4 * B
            thing["sample_id"] = np.array([plan(int(p)) for p in thing["position"]])

    folder = two_kills(tmp_path / "run", on_consume(restart)).folder
    judged(folder, 3, "invalid", "samples at positions 0–7", "were applied twice (16 in all): at step 0 by attempt 0 "
           "and at step 4 by attempt 1")  # fmt: skip


@pytest.mark.parametrize(("other", "words"), [(0, "it is the order of epoch 0"), (9, "")])
def test_another_epochs_order(tmp_path: Path, judged: Judge, other: int, words: str) -> None:
    """After the restart the order of epoch 1 is that of epoch 0, or of an epoch that is far off."""

    def reorder(thing: Any) -> None:
        if thing["attempt"] == 2:
            thing["sample_id"] = np.array(
                [plan(p % 50 + other * 50) if p >= 50 else plan(p) for p in thing["position"].tolist()]
            )

    folder = two_kills(tmp_path / "run", on_consume(reorder)).folder
    witness = judged(
        folder, 3, "invalid", "the order differs from the plan in epoch 1: at step 6 attempt 2", words
    )
    assert ("it is the order" in witness) == bool(words)


def test_a_whole_epoch_is_skipped(tmp_path: Path, judged: Judge) -> None:
    def skip(thing: Any) -> None:
        if thing["attempt"] == 2 and thing["step"][0] >= 7:
            thing["position"] = thing["position"] + 50
            thing["sample_id"] = np.array([plan(int(p)) for p in thing["position"]])

    sim = Simulation(tmp_path / "run", Settings(steps=24, faults=[]), on_consume(
        lambda t: (t.update(position=t["position"] + 50 * (t["step"][0] >= 6))
                   or t.update(sample_id=np.array([plan(int(p)) for p in t["position"]])))
    ))  # fmt: skip
    sim.start()
    sim.train(24)
    sim.finish()
    judged(sim.folder, 3, "invalid", "samples at positions 48–97", "were never applied in epoch 0–1")
    exact = two_kills(tmp_path / "exact", on_consume(skip), rows=56, steps=24)
    judged(exact.folder, 3, "invalid", "never applied")


def test_the_gap_names_a_whole_epoch(tmp_path: Path, judged: Judge) -> None:
    def skip(thing: Any) -> None:
        if thing["step"][0] >= 6:
            thing["position"] = thing["position"] + 48
            thing["sample_id"] = np.array([sample_id(int(p), 48, 8, 2, 7) for p in thing["position"]])

    sim = Simulation(tmp_path / "run", Settings(steps=24, rows=48), on_consume(skip))
    sim.start()
    sim.train(24)
    sim.finish()
    judged(sim.folder, 3, "invalid", "samples at positions 48–95", "were never applied, the whole of epoch 1")


def test_a_run_that_ends_early_but_says_finished(tmp_path: Path, judged: Judge) -> None:
    sim = Simulation(tmp_path / "run")
    sim.start()
    sim.train(8)
    sim.finish()
    judged(
        sim.folder, 3, "invalid", "finished at step 8 of 12, but the ledger ends at step 8: positions 64–95"
    )


def test_a_finished_run_that_published_nothing(tmp_path: Path, judged: Judge) -> None:
    sim = Simulation(tmp_path / "run")
    sim.start()
    sim.train(12, publish=False)
    sim.finish()
    judged(sim.folder, 3, "invalid", "the ledger ends at step 0: positions 0–95 were never applied")


def test_a_run_that_stopped_before_it_published_is_not_judged(tmp_path: Path, judged: Judge) -> None:
    sim = Simulation(tmp_path / "run")
    sim.start()
    sim.train(1)
    sim.finish(finished=False)
    judged(sim.folder, 3, "not_judged", "nothing was published")


def test_a_lost_segment_leaves_its_positions_open_and_no_others(tmp_path: Path, judged: Judge) -> None:
    run = two_kills(tmp_path / "run")
    (run.folder / "store/ledger/s00000004-a0000-r0001.arrow").unlink()
    judged(
        run.folder,
        3,
        "unknown",
        "the ledger of s00000004-a0000, rank 1, is lost",
        "8 positions cannot be judged",
    )
    for attempt, step in ((0, 1), (1, 5)):  # before it and after it
        other = two_kills(tmp_path / f"other{step}", on_rows(attempt, step, 0, lambda t: columns(t, [0, 2, 3])))
        (other.folder / "store/ledger/s00000004-a0000-r0001.arrow").unlink()
        judged(other.folder, 3, "invalid", f"position {step * B + 1}")


def test_a_lost_manifest_leaves_its_positions_open(run: Simulation, judged: Judge) -> None:
    (run.folder / "store/manifests/s00000004-a0000.json").unlink()
    judged(run.folder, 3, "unknown", "the manifest of s00000004-a0000 is lost, see invariant 1",
           "16 positions cannot be judged")  # fmt: skip


def test_a_step_may_be_a_single_sample(tmp_path: Path, judged: Judge) -> None:
    sim = Simulation(tmp_path / "run", Settings(ranks=1, microbatches=1, global_batch=1))
    sim.start()
    sim.train(12)
    sim.finish()
    judged(sim.folder, 3, "valid")


def test_a_batch_that_microbatches_do_not_divide_is_judged_without_them(run: Simulation, judged: Judge) -> None:
    edit_run_event(run, lambda event: event.update(microbatches=3))
    judged(run.folder, 3, "valid")


def test_a_changed_segment_is_no_evidence(run: Simulation, judged: Judge) -> None:
    run.damage("ledger/s00000004-a0000-r0001.arrow")
    judged(run.folder, 3, "unknown", "rank 1, is lost")


@pytest.mark.parametrize(
    ("change", "words"),
    [
        ({"cursor": 40}, "has cursor 40 beside optimizer step 4, which is position 32"),
        ({"parent": None}, "names nothing as its parent, by the log it descends from s00000002-a0000"),
        ({"parent": "sha256:0"}, "names a manifest outside of the lineage as its parent"),
    ],
)
def test_a_manifest_at_odds_with_the_lineage(tmp_path: Path, judged: Judge, change: Any, words: str) -> None:
    def edit(kind: str, thing: Any) -> None:
        if kind == "manifest" and thing["name"] == "s00000004-a0000":
            thing.update(change)

    judged(two_kills(tmp_path / "run", edit).folder, 3, "invalid", "s00000004-a0000", words)


def test_a_parent_that_is_another_of_the_lineage(tmp_path: Path, judged: Judge) -> None:
    first: dict[str, str] = {}

    def edit(kind: str, thing: Any) -> None:
        if kind == "manifest" and thing["name"] == "s00000006-a0001":
            thing["parent"] = sim.branch[0]["digest"]

    sim = Simulation(tmp_path / "run", Settings(faults=[F0], keep=9), edit)
    sim.start()
    sim.train(5)
    sim.kill(F0)
    sim.recover()
    sim.train(12)
    sim.finish()
    judged(
        sim.folder, 3, "invalid", "names s00000002-a0000 as its parent, by the log it descends from s00000004"
    )
    assert not first


def test_a_segment_that_covers_other_steps(tmp_path: Path, judged: Judge) -> None:
    def edit(kind: str, thing: Any) -> None:
        if kind == "segment" and thing["meta"]["step"] == 4 and thing["meta"]["rank"] == 1:
            thing["meta"]["first_step"] = 3

    judged(two_kills(tmp_path / "run", edit).folder, 3, "invalid", "covers updates 3 to 3, it must be 2 to 3",
           "in a ledger segment that does not cover that step")  # fmt: skip


def test_wrong_steps_in_the_rows(tmp_path: Path, judged: Judge) -> None:
    def late(thing: Any) -> None:
        thing["step"] = thing["step"] + 1

    judged(two_kills(tmp_path / "run", on_rows(2, 8, 0, late)).folder, 3, "invalid",
           "step 9 of attempt 2 consumed position 64", "which is not that step's; step 9 has positions "
           "72–79")  # fmt: skip


def test_ids_that_the_rank_recorded_differ(tmp_path: Path, judged: Judge) -> None:
    def edit(kind: str, thing: Any) -> None:
        if kind == "event" and thing["event"] == "step" and (thing["step"], thing["rank"]) == (10, 1):
            thing["ids"] = "xxh3-128:0"

    judged(two_kills(tmp_path / "run", edit).folder, 3, "invalid",
           "rank 1 of attempt 2 recorded other samples for step 9 than its ledger has")  # fmt: skip


@pytest.mark.parametrize(
    ("step", "verdict", "words"),
    [
        (12, "unknown", "the history of rank 1 in attempt 2 lacks step 12"),
        (10, "invalid", "rank 1 of attempt 2 trained step 11 after step 9"),
    ],
)
def test_a_published_step_that_no_rank_recorded(
    tmp_path: Path, judged: Judge, step: int, verdict: str, words: str
) -> None:
    def edit(kind: str, thing: Any) -> None:
        if kind == "event" and thing["event"] == "step" and (thing["step"], thing["rank"]) == (step, 1):
            thing["drop"] = True

    judged(two_kills(tmp_path / "run", edit).folder, 3, verdict, words)


def test_an_abandoned_branch_is_not_the_ledger(tmp_path: Path, judged: Judge) -> None:
    """Step 4 is published by attempt 0, rejected for damage, and trained again by attempt 1."""
    damage = {
        **F0,
        "id": "f9",
        "kind": "damage",
        "role": "store",
        "rank": None,
        "point": None,
        "hit": None,
        "gate": None,
    }
    sim = Simulation(tmp_path / "run", Settings(faults=[F0, damage], keep=99))
    sim.start()
    sim.train(5)
    sim.damage("shards/s00000004-a0000-r0000.safetensors", damage)
    sim.kill(F0)
    sim.recover(reject=1)
    sim.train(12)
    sim.finish()
    assert audit_run(sim.folder).verdict == "valid"


# -- the dataset


def test_no_dataset(run: Simulation, judged: Judge) -> None:
    for path in run.dataset.iterdir():
        path.unlink()
    judged(run.folder, 3, "unknown", "contents cannot be judged: no *.parquet file in")


def test_a_file_that_is_no_parquet(run: Simulation, judged: Judge) -> None:
    (run.dataset / "part-000.parquet").write_bytes(b"PAR1")
    judged(run.folder, 3, "unknown", "cannot be read")


def fingerprint_now(run: Simulation) -> str:
    """Of the dataset as it is now."""
    found = read_evidence(run.folder, None).dataset.fingerprint
    assert found is not None
    assert found != run.fingerprint
    return found


def rewrite(run: Simulation, **changes: Any) -> None:
    table = pa.table({"x": pa.FixedSizeListArray.from_arrays(pa.array(run.columns["x"].reshape(-1)), 3),
                      "a": pa.array(run.columns["a"])})  # fmt: skip
    for name, array in changes.items():
        table = (
            table.set_column(0, name, array)
            if name in table.column_names
            else table.append_column(name, array)
        )
    for path in run.dataset.iterdir():
        path.unlink()
    pq.write_table(table, run.dataset / "all.parquet", row_group_size=8)


def test_a_dataset_that_was_repacked_is_another_but_holds_the_rows(run: Simulation, judged: Judge) -> None:
    rewrite(run)
    witness = judged(run.folder, 3, "unknown")
    first, prints = run.branch[0]["name"], fingerprint_now(run)
    assert witness == (
        f"the dataset in {run.dataset} is not the one that was trained on: its fingerprint is {prints[:19]}…, "
        f"that of {first} {run.fingerprint[:19]}…"
    )


def test_a_dataset_with_other_rows(run: Simulation, judged: Judge) -> None:
    rewrite(run, y=pa.array(range(50)))
    judged(run.folder, 3, "invalid", "the content of sample", "is not that of the dataset's row",
           "is not the one that was trained on")  # fmt: skip


@pytest.mark.parametrize(
    "column",
    [pa.array(["a"] * 50), pa.array([1, None] * 25), pa.array([[1], None] * 25, pa.list_(pa.int8(), 1))],
)
def test_columns_that_have_no_digest(run: Simulation, judged: Judge, column: pa.Array) -> None:
    rewrite(run, y=column)
    judged(run.folder, 3, "unknown", "column y has empty values")


def test_a_shorter_dataset(run: Simulation, judged: Judge) -> None:
    (run.dataset / "part-002.parquet").unlink()
    judged(run.folder, 3, "unknown", "has 48 rows, the plan 50", "the dataset lacks", "that the ledger names")


# -- what the run recorded


def edit_run_event(run: Simulation, change: Any) -> None:
    path = run.supervisor.path
    events = bodies(path)
    change(events[1])
    rechain(path, events)


def test_without_the_plans_parameters_samples_are_open(run: Simulation, judged: Judge) -> None:
    edit_run_event(run, lambda event: event.pop("plan"))
    judged(
        run.folder, 3, "unknown", "does not have the plan's parameters", "does not say where the dataset is"
    )


def test_without_a_plan_positions_are_still_judged(tmp_path: Path, judged: Judge) -> None:
    run = two_kills(tmp_path / "run", on_rows(1, 5, 0, lambda t: columns(t, [0, 1, 1, 2, 3])))
    edit_run_event(run, lambda event: event.pop("plan"))
    judged(run.folder, 3, "invalid", "the sample at position 41 was applied twice")


def test_without_plan_and_dataset_a_gap_has_positions_only(tmp_path: Path, judged: Judge) -> None:
    run = two_kills(tmp_path / "run", on_rows(2, 11, 1, lambda t: columns(t, [0, 1, 2])))
    edit_run_event(run, lambda event: event.pop("plan"))
    judged(run.folder, 3, "invalid", "the sample at position 95 was never applied;")


def test_another_plan_than_the_manifests(run: Simulation, judged: Judge) -> None:
    edit_run_event(run, lambda event: event["plan"].update(seed=8))
    # Another plan says nothing of these samples.
    assert judged(run.folder, 3, "invalid") == f"the plan in the history is not the one of {run.branch[0]['name']}"


@pytest.mark.parametrize(
    "change", [{"group_rows": 0}, {"rows": 3 * 10**9, "group_rows": 1}, {"window_groups": 1 << 62}]
)
def test_a_plan_that_is_not_the_manifests_is_not_evaluated(
    run: Simulation, judged: Judge, change: dict[str, int]
) -> None:
    edit_run_event(run, lambda event: event["plan"].update(change))
    judged(run.folder, 3, "invalid", "the plan in the history is not the one of")


def test_the_dataset_may_be_named_by_a_later_event(run: Simulation, judged: Judge) -> None:
    events = bodies(run.supervisor.path)
    later = {
        **events[2],
        "event": "surveyed",
        "dataset": events[1].pop("dataset"),
        "plan": events[1].pop("plan"),
    }
    rechain(run.supervisor.path, [*events[:2], later, *events[2:]])
    judged(run.folder, 3, "valid")


def test_without_the_run_event(run: Simulation, judged: Judge) -> None:
    events = bodies(run.supervisor.path)
    rechain(run.supervisor.path, [events[0], *events[2:]])
    judged(run.folder, 3, "unknown", "does not say what the run was")


# -- any change of any rows

_CHANGES = ("drop", "repeat", "sample", "content", "position", "step")


@pytest.mark.no_cover
@settings(max_examples=40, deadline=None)
@given(
    step=st.integers(0, 11),
    rank=st.integers(0, 1),
    row=st.integers(0, 3),
    change=st.sampled_from(_CHANGES),
    by=st.integers(1, 30),
)
def test_no_single_wrong_row_is_valid(
    tmp_path_factory: pytest.TempPathFactory, step: int, rank: int, row: int, change: str, by: int
) -> None:
    def spoil(kind: str, thing: Any) -> None:
        if kind != "rows" or (int(thing["step"][0]), thing["rank"]) != (step, rank):
            return
        if change == "drop":
            columns(thing, [i for i in range(4) if i != row])
        elif change == "repeat":
            columns(thing, [*range(4), row])
        else:
            name = {"sample": "sample_id"}.get(change, change)
            thing[name] = thing[name].copy()
            thing[name][row] += np.array(by).astype(thing[name].dtype)

    folder = two_kills(tmp_path_factory.mktemp("run") / "run", spoil).folder
    says(audit_run(folder), 3, "invalid")


def test_rows_under_another_microbatch_than_that_of_their_position(tmp_path: Path, judged: Judge) -> None:
    edit = on_rows(0, 2, 0, lambda thing: thing.update(microbatch=thing["microbatch"][::-1].copy()))
    judged(two_kills(tmp_path / "run", edit).folder, 3, "invalid", "microbatch")


# -- the check by itself, on one run that is read once and altered a piece at a time


@pytest.fixture(scope="module")
def whole(tmp_path_factory: pytest.TempPathFactory) -> Evidence:
    """A valid run of two ranks, twelve steps and three attempts."""
    return read_evidence(two_kills(tmp_path_factory.mktemp("ledger") / "run", keep=99).folder)


def found(evidence: Evidence) -> tuple[str, str]:
    finding = ledger.check(evidence)
    return finding.verdict.value, finding.witness


def with_segment(evidence: Evidence, name: str, change: Callable[[Segment], Segment]) -> Evidence:
    """name: of the checkpoint and rank. Its digest is as it was."""
    path = f"ledger/{name}.arrow"
    seen = evidence.store.files[path]
    assert seen.segment is not None
    altered = replace(seen, segment=change(seen.segment.part(0, seen.segment.rows)))
    return replace(evidence, store=replace(evidence.store, files={**evidence.store.files, path: altered}))


def begun_with(evidence: Evidence, **changes: Any) -> Evidence:
    assert evidence.begun is not None
    return replace(evidence, begun=replace(evidence.begun, **changes))


def without_files(evidence: Evidence, *paths: str) -> Evidence:
    files = {path: seen for path, seen in evidence.store.files.items() if path not in paths}
    return replace(evidence, store=replace(evidence.store, files=files))


def rows_but(without: int) -> Callable[[Segment], Segment]:
    """All rows but that of a position."""

    def change(segment: Segment) -> Segment:
        own = segment.position != without
        columns = {name: getattr(segment, name)[own] for name in
                   ("position", "sample_id", "content", "step", "microbatch")}  # fmt: skip
        return replace(segment, **columns)

    return change


def test_the_run_that_is_altered_here_is_valid(whole: Evidence) -> None:
    assert found(whole) == ("valid", "")


@pytest.mark.parametrize("batch", [0, -8])
def test_a_step_has_a_sample_at_least(whole: Evidence, batch: int) -> None:
    words = f"the history says that a step has {batch} samples"
    assert found(begun_with(whole, global_batch=batch)) == ("unknown", words)


def test_ranks_that_trained_out_of_turn(whole: Evidence) -> None:
    lost = with_events(whole, StepDone, lambda e: None if (e.what.step, e.what.rank) == (10, 1) else e)
    verdict, witness = found(lost)
    assert verdict == "invalid"
    assert "rank 1 of attempt 2 trained step 11 after step 9, where 10 was next" in witness


def test_a_group_of_another_number_of_ranks(whole: Evidence) -> None:
    altered = with_events(whole, Formed, lambda e: replace(e, what=Formed(3)) if e.attempt == 1 else e)
    assert found(altered) == ("invalid", "attempt 1 formed a group of 3 ranks, the run has 2")


def test_a_segment_covers_what_lies_between_two_checkpoints(whole: Evidence) -> None:
    for meta, words in (
        ({"first_step": 1}, "covers updates 1 to 3, it must be 2 to 3"),
        ({"last_step": 4}, "covers updates 2 to 4, it must be 2 to 3"),
        ({"microbatch": 1}, "covers updates 2 to 3 (of it 1 microbatch), it must be 2 to 3"),
        ({"first_microbatch": 1}, "covers updates 2 (from microbatch 1 on) to 3, it must be 2 to 3"),
    ):

        def change(segment: Segment, meta: dict[str, int] = meta) -> Segment:
            return replace(segment, meta=replace(segment.meta, **meta))  # type: ignore[arg-type]

        verdict, witness = found(with_segment(whole, "s00000004-a0000-r0001", change))
        assert verdict == "invalid"
        assert f"the ledger of s00000004-a0000, rank 1, {words}" in witness


def shifted(segment: Segment) -> Segment:
    return replace(segment, microbatch=segment.microbatch[::-1].copy())


def test_rows_under_another_microbatch_where_ranks_and_microbatches_divide_the_batch(whole: Evidence) -> None:
    """Where they do not, nobody knows which microbatch a position belongs to."""
    altered = with_segment(whole, "s00000004-a0000-r0001", shifted)
    words = "in another microbatch than the position belongs to"
    assert words in found(altered)[1]
    for split in ({"microbatches": 3}, {"microbatches": 5}, {"microbatches": 8}):
        assert words not in found(begun_with(altered, **split))[1]
        assert found(begun_with(whole, **split)) == ("valid", "")


def test_ids_that_a_rank_recorded_otherwise_than_its_ledger(whole: Evidence) -> None:
    def change(event: Event[Any]) -> Event[Any]:
        other = (event.what.step, event.what.rank) == (10, 1)
        return replace(event, what=replace(event.what, ids="xxh3-128:0")) if other else event

    verdict, witness = found(with_events(whole, StepDone, change))
    assert verdict == "invalid"
    assert witness.startswith("rank 1 of attempt 2 recorded other samples for step 9 than its ledger has")


def test_a_published_update_without_a_record(whole: Evidence) -> None:
    lost = with_events(whole, StepDone, lambda e: None if (e.what.step, e.what.rank) == (12, 0) else e)
    assert found(lost) == ("unknown", "the history of rank 0 in attempt 2 lacks step 12")


def test_samples_of_an_update_that_was_never_published(whole: Evidence) -> None:
    """Step 5 of attempt 0 was done again by attempt 1."""

    def change(event: Event[Any]) -> Event[Any]:
        other = (event.attempt, event.what.step, event.what.rank) == (0, 5, 0)
        return replace(event, what=replace(event.what, ids="xxh3-128:0")) if other else event

    words = "rank 0 of attempt 0 recorded other samples for step 4 than the plan says"
    assert found(with_events(whole, StepDone, change)) == ("invalid", words)


def test_a_sample_that_is_not_the_plans_is_told_with_the_plans(whole: Evidence) -> None:
    def swap(segment: Segment) -> Segment:
        order = np.arange(segment.rows)
        order[[0, 1]] = [1, 0]
        return replace(segment, sample_id=segment.sample_id[order], content=segment.content[order])

    witness = found(with_segment(whole, "s00000004-a0000-r0000", swap))[1]
    assert f"consumed sample {plan(17)} at position 16, the plan says {plan(16)}" in witness


def test_another_plan_says_nothing_of_a_gap(whole: Evidence) -> None:
    """Neither which samples are missing, nor in which epoch."""
    assert whole.plan is not None
    other = replace(whole, plan=replace(whole.plan, seed=8))
    first = "the plan in the history is not the one of s00000002-a0000"
    assert found(other) == ("invalid", first)
    witness = found(with_segment(other, "s00000012-a0002-r0001", rows_but(95)))[1]
    assert "the sample at position 95 was never applied;" in witness
    witness = found(with_segment(other, "s00000004-a0000-r0001", rows_but(20)))[1]
    assert "the sample at position 20 was never applied: attempt 0 went on with position 21 at step 2" in witness


def test_the_plan_is_the_historys_where_no_manifest_is_left(whole: Evidence) -> None:
    lost = replace(whole, store=replace(whole.store, manifests={}))
    verdict, witness = found(lost)
    assert verdict == "unknown"
    assert "the manifest of s00000002-a0000 is lost" in witness

    def change(event: Event[Any]) -> Event[Any]:
        other = (event.attempt, event.what.step, event.what.rank) == (0, 1, 1)
        return replace(event, what=replace(event.what, ids="xxh3-128:0")) if other else event

    words = "rank 1 of attempt 0 recorded other samples for step 0 than the plan says"
    assert words in found(with_events(lost, StepDone, change))[1]


def test_of_a_lost_segment_its_own_steps_are_open_and_no_others(whole: Evidence) -> None:
    lost = without_files(whole, "ledger/s00000004-a0000-r0001.arrow")
    assert "8 positions cannot be judged without the lost ledger" in found(lost)[1]
    for name, position in (("s00000002-a0000-r0000", 9), ("s00000006-a0001-r0000", 32)):
        witness = found(with_segment(lost, name, rows_but(position)))[1]
        assert f"the sample at position {position} (ids {plan(position)}) was never applied" in witness


def test_rows_that_a_dataset_lacks_are_counted(whole: Evidence) -> None:
    known = whole.dataset.known.copy()
    known[plan(0)] = False  # consumed at positions 0 and, in the second epoch, at one more
    verdict, witness = found(replace(whole, dataset=replace(whole.dataset, known=known)))
    assert (verdict, witness) == ("unknown", "the dataset lacks 2 samples that the ledger names")
    problem = replace(whole.dataset, known=known, problem="cannot be read")
    assert found(replace(whole, dataset=problem)) == ("unknown", "contents cannot be judged: cannot be read")
