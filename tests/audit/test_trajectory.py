"""Invariant 5: what differs from the twin is found and named, and what only looks like a twin proves nothing."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from judging import Judge
from simulated_run import F0, Edit, Settings, Simulation, two_kills

from chaos.audit import audit_run

Change = Callable[[dict[str, Any]], object]


def with_twin(folder: Path, edit: Edit | None = None, twin_edit: Edit | None = None, **settings: Any) -> Path:
    """A run with two kills, and its twin inside."""
    wanted = {"twin": True, **settings}
    two_kills(folder, edit or _as_it_is, **wanted)
    twin(folder / "twin", twin_edit or _as_it_is, **wanted)
    return folder


def twin(folder: Path, edit: Edit, **settings: Any) -> None:
    sim = Simulation(folder, Settings(**{**settings, "twin": False}), edit)
    sim.start()
    sim.train(sim.set.steps)
    sim.finish()


def _as_it_is(kind: str, thing: Any) -> None:
    del kind, thing


def at_step(step: int, rank: int, attempt: int, change: Change) -> Edit:
    def edit(kind: str, thing: Any) -> None:
        if kind != "event" or thing["event"] != "step":
            return
        if (thing["step"], thing["rank"], thing["attempt"]) == (step, rank, attempt):
            change(thing)

    return edit


def test_a_run_that_equals_its_twin_is_valid(tmp_path: Path, judged: Judge) -> None:
    folder = with_twin(tmp_path / "run")
    judged(folder, 5, "valid")
    verdict = audit_run(folder)
    assert verdict.verdict == "valid"
    assert not [line for line in verdict.unseen if "twin" in line]


def test_without_a_wanted_twin_nothing_is_known(tmp_path: Path, judged: Judge) -> None:
    two_kills(tmp_path / "run", twin=True)
    judged(tmp_path / "run", 5, "unknown", "the twin is missing", f"--resume {tmp_path / 'run'}")


def test_where_none_was_wanted_nothing_is_judged(tmp_path: Path, judged: Judge) -> None:
    two_kills(tmp_path / "run")
    judged(tmp_path / "run", 5, "not_judged")


@pytest.mark.no_cover
@pytest.mark.parametrize(
    ("change", "words"),
    [
        (lambda e: e.update(loss=(0.75).hex()), ["loss (0.75, twin 0.125)"]),
        (lambda e: e.update(loss="nan"), ["loss (nan, twin 0.125)"]),
        (lambda e: e.update(lr=[(0.5).hex()]), ["learning rate (0.5, twin"]),
        (lambda e: e.update(lr=[]), ["number of learning rates"]),
        (lambda e: e.update(gradient_norm="inf"), ["gradient norm (inf, twin 7.5)"]),
        (lambda e: e["state"].update(optimizer="0" * 16), ["optimizer"]),
        (lambda e: e["state"].pop("rng.torch"), ["rng.torch"]),
        (lambda e: e["state"].update(other="0" * 16), ["other"]),
        (lambda e: e.update(skipped=True), ["skipped"]),
        (lambda e: e.update(samples_seen=1), ["samples seen"]),
    ],
)
@pytest.mark.parametrize("attempt", [1, 2])
def test_any_field_of_any_attempt_is_compared(
    tmp_path: Path, judged: Judge, change: Change, words: list[str], attempt: int
) -> None:
    folder = with_twin(tmp_path / "run", at_step(8, 1, attempt, change))
    judged(folder, 5, "invalid", f"attempt {attempt}, step 8, rank 1: not the twin's", *words)


def test_the_witness_is_the_first_difference(tmp_path: Path, judged: Judge) -> None:
    def edit(kind: str, thing: Any) -> None:
        if kind == "event" and thing["event"] == "step" and thing["attempt"] == 2 and thing["step"] >= 9:
            thing["state"]["model"] = f"{thing['step']:016d}"

    witness = judged(with_twin(tmp_path / "run", edit), 5, "invalid", "attempt 2, step 9, rank 0", "model")
    assert "step 10" not in witness


def test_what_was_restored_is_compared_before_the_first_update(tmp_path: Path, judged: Judge) -> None:
    def edit(kind: str, thing: Any) -> None:
        if kind == "event" and thing["event"] == "restored" and thing.get("rank") == 0 and thing["attempt"] == 1:
            thing["state"]["rng.numpy"] = "0" * 16

    judged(with_twin(tmp_path / "run", edit), 5, "invalid", "rng.numpy as restored", "attempt 1, step 4, rank 0")


def test_the_first_attempt_is_compared_from_its_start_on(tmp_path: Path, judged: Judge) -> None:
    def start(kind: str, thing: Any) -> None:
        if kind == "event" and thing["event"] == "restored" and thing.get("rank") == 1 and thing["attempt"] == 0:
            thing["state"]["model"] = "0" * 16

    words = "attempt 0, step 0, rank 1: not the twin's model as restored"
    judged(with_twin(tmp_path / "run", start), 5, "invalid", words)
    step = at_step(3, 0, 0, lambda event: event.update(skipped=True))
    judged(with_twin(tmp_path / "other", step), 5, "invalid", "attempt 0, step 3, rank 0: not the twin's skipped")


def test_numbers_that_are_not_finite_fail_even_if_the_twin_has_them(tmp_path: Path, judged: Judge) -> None:
    def edit(kind: str, thing: Any) -> None:
        if kind == "event" and thing["event"] == "step" and thing["step"] == 9:
            thing["loss"] = "nan"

    judged(with_twin(tmp_path / "run", edit, edit), 5, "invalid", "finite loss (nan)")


def test_an_overflow_that_was_skipped_is_no_failure(tmp_path: Path, judged: Judge) -> None:
    def edit(kind: str, thing: Any) -> None:
        if kind == "event" and thing["event"] == "step" and thing["step"] == 9:
            thing.update(gradient_norm="inf", skipped=True)

    judged(with_twin(tmp_path / "run", edit, edit), 5, "valid")


@pytest.mark.parametrize(("by", "judgement"), [(2**-20, "valid"), (2**-19, "valid"), (2**-18, "invalid")])
def test_a_stated_tolerance(tmp_path: Path, judged: Judge, by: float, judgement: str) -> None:
    def change(event: dict[str, Any]) -> None:
        event["loss"] = (float.fromhex(event["loss"]) + by).hex()
        event["state"]["model"] = "0" * 16

    folder = with_twin(tmp_path / "run", at_step(8, 1, 2, change), tolerance=2**-19)
    judged(folder, 5, judgement)
    assert any("tolerance of 1.90735e-06" in line for line in audit_run(folder).unseen)


def test_samples_are_exact_under_any_tolerance(tmp_path: Path, judged: Judge) -> None:
    folder = with_twin(tmp_path / "run", at_step(8, 1, 2, lambda e: e.update(ids="xxh3-128:0")), tolerance=1e9)
    judged(folder, 5, "invalid", "samples")


def test_a_checkpoint_is_compared_part_by_part(tmp_path: Path, judged: Judge) -> None:
    def edit(kind: str, thing: Any) -> None:
        if kind == "manifest" and thing["step"] == 4:
            thing["ranks"][1]["parts"]["progress"] = "xxh3-128:0"

    judged(with_twin(tmp_path / "run", None, edit), 5, "invalid", "checkpoint s00000004-a0000", "progress of rank 1")


def test_two_twins_that_differ_prove_nothing(tmp_path: Path, judged: Judge) -> None:
    folder = with_twin(tmp_path / "run", at_step(8, 1, 2, lambda e: e.update(loss=(0.75).hex())))

    def differs(kind: str, thing: Any) -> None:
        for step in (3, 4):
            at_step(step, 0, 0, lambda e: e.update(loss=(0.5).hex()))(kind, thing)

    twin(folder / "twin-2", differs)
    judged(folder, 5, "unknown", "not deterministic: a second twin, attempt 0, step 3, rank 0")


def test_a_second_twin_that_equals_the_first_makes_the_run_wrong(tmp_path: Path, judged: Judge) -> None:
    folder = with_twin(tmp_path / "run", at_step(8, 1, 2, lambda e: e.update(loss=(0.75).hex())))
    twin(folder / "twin-2", _as_it_is)
    judged(folder, 5, "invalid", "attempt 2, step 8, rank 1")


def _interrupted(folder: Path) -> None:
    two_kills(folder)


def _of_another_seed(folder: Path) -> None:
    twin(folder, _as_it_is, seed=99)


def _on_another_processor(folder: Path) -> None:
    def edit(kind: str, thing: Any) -> None:
        if kind == "event" and thing["event"] == "run":
            thing["platform"] = {"torch": "3"}

    twin(folder, edit)


def _of_other_code(folder: Path) -> None:
    def edit(kind: str, thing: Any) -> None:
        if kind == "manifest":
            thing["fingerprints"]["code"] = "e"

    twin(folder, edit)


def _too_short(folder: Path, lines: int = 3) -> None:
    twin(folder, _as_it_is)
    worker = next((folder / "history").glob("worker-*.jsonl"))
    worker.write_bytes(b"".join(worker.read_bytes().splitlines(keepends=True)[:-lines]))


def _without_its_last_line(folder: Path) -> None:
    _too_short(folder, 1)


def _with_a_plan_to_kill(folder: Path) -> None:
    twin(folder, _as_it_is, faults=[F0])


def _of_a_damaged_log(folder: Path) -> None:
    twin(folder, _as_it_is)
    (folder / "store/log/00000003.json").write_bytes(b"{")


def _of_a_changed_history(folder: Path) -> None:
    twin(folder, _as_it_is)
    worker = next((folder / "history").glob("worker-*.jsonl"))
    worker.write_bytes(worker.read_bytes().replace(b'"step":9', b'"step":8', 1))


def _without_its_manifests(folder: Path) -> None:
    twin(folder, _as_it_is)
    for path in (folder / "store/manifests").iterdir():
        path.unlink()


@pytest.mark.parametrize(
    ("make", "word"),
    [
        (_interrupted, "interrupted"),
        (_of_another_seed, "of another seed"),
        (_on_another_processor, "of another platform"),
        (_of_other_code, "another dataset, plan, configuration or code"),
        (_too_short, "is not what its supervisor saw"),
        (_without_its_last_line, "is not what its supervisor saw"),
        (_with_a_plan_to_kill, "faults were planned in it"),
        (_of_a_damaged_log, "log/00000003.json is no sealed file"),
        (_of_a_changed_history, "does not continue the chain"),
        (_without_its_manifests, "another dataset, plan, configuration or code"),
    ],
)
def test_what_only_looks_like_a_twin_proves_nothing(
    tmp_path: Path, judged: Judge, make: Callable[[Path], None], word: str
) -> None:
    two_kills(tmp_path / "run", twin=True)
    make(tmp_path / "run" / "twin")
    judged(tmp_path / "run", 5, "unknown", "twin", word)


def test_a_twin_that_does_not_say_what_was_run_proves_nothing(tmp_path: Path, judged: Judge) -> None:
    def other_event(kind: str, thing: Any) -> None:
        if kind == "event" and thing["event"] == "run":
            thing["event"] = "run_of_something"

    with_twin(tmp_path / "run", twin_edit=other_event)
    judged(tmp_path / "run", 5, "unknown", "its history does not say what was run")


def test_a_twin_whose_supervisor_never_closed_its_history_proves_nothing(tmp_path: Path, judged: Judge) -> None:
    def never(kind: str, thing: Any) -> None:
        if kind == "event" and thing["event"] == "closed" and "heads" in thing:
            thing["heads"] = []

    with_twin(tmp_path / "run", twin_edit=never)
    judged(tmp_path / "run", 5, "unknown", "its supervisor never closed its history")


def test_a_run_without_the_record_of_any_step_is_not_known_to_equal_its_twin(tmp_path: Path, judged: Judge) -> None:
    def silent(kind: str, thing: Any) -> None:
        if kind == "event" and thing["event"] == "step":
            thing["event"] = "stepped"

    with_twin(tmp_path / "run", edit=silent)
    judged(tmp_path / "run", 5, "unknown", "the run has no record of any step")


def test_of_steps_that_the_twin_lacks_the_first_is_told(tmp_path: Path, judged: Judge) -> None:
    """By number, whatever the rank."""

    def lost(kind: str, thing: Any) -> None:
        for step, rank in ((7, 0), (8, 0), (6, 1), (9, 1)):
            at_step(step, rank, 0, lambda event: event.update(drop=True))(kind, thing)

    with_twin(tmp_path / "run", twin_edit=lost)
    judged(tmp_path / "run", 5, "unknown", "the twin has no record of step 6 of rank 1")


def test_a_step_that_the_twin_of_a_single_rank_lacks(tmp_path: Path, judged: Judge) -> None:
    sim = Simulation(tmp_path / "run", Settings(ranks=1, twin=True))
    sim.start()
    sim.train(12)
    sim.finish()
    twin(sim.folder / "twin", at_step(5, 0, 0, lambda event: event.update(drop=True)), ranks=1)
    judged(sim.folder, 5, "unknown", "the twin has no record of step 5 of rank 0")


def test_a_run_that_does_not_say_what_it_was_is_not_compared(tmp_path: Path, judged: Judge) -> None:
    def unknown(kind: str, thing: Any) -> None:
        if kind == "event" and thing["event"] == "run":
            thing["drop"] = True

    with_twin(tmp_path / "run", edit=unknown)
    assert judged(tmp_path / "run", 5, "unknown") == "the history does not say what was run"


def test_rates_of_another_number_of_groups_differ(tmp_path: Path, judged: Judge) -> None:
    with_twin(tmp_path / "run", edit=at_step(4, 0, 0, lambda event: event["lr"].append(event["lr"][0])))
    judged(tmp_path / "run", 5, "invalid", "number of learning rates")


@pytest.mark.parametrize("step", [3, 4])  # the first restart begins with what was there after step 4
def test_a_step_that_the_twin_did_not_record_proves_nothing(tmp_path: Path, judged: Judge, step: int) -> None:
    with_twin(tmp_path / "run", twin_edit=at_step(step, 1, 0, lambda event: event.update(drop=True)))
    judged(tmp_path / "run", 5, "unknown", f"the twin has no record of step {step} of rank 1")
