"""Best metric, best model and skipped updates, re-derived from the record (a part of invariant 4)."""

from __future__ import annotations

import json
import math
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from evidence_by_hand import Entries, Line, checkpoint, evidence, recorded, step
from hypothesis import given, settings
from hypothesis import strategies as st
from judging import Judge
from simulated_run import Edit, Simulation, two_kills

from chaos.audit.events import NonFinite, Restored
from chaos.audit.evidence import HistoryFile
from chaos.audit.findings import Case
from chaos.audit.record import Best, Bests, judge_record, running_best

LOSSES = {1: 0.9, 2: 0.5, 3: math.nan, 4: 0.7, 5: 0.4, 6: 0.6, 7: 0.4, 8: 0.8, 9: 0.45, 10: 0.3, 11: 0.31, 12: math.inf}


def rich(folder: Path, edit: Edit = lambda kind, thing: None) -> Simulation:
    """Two kills; losses that fall and rise, some not finite; two skips; a best model; every shard kept."""
    return two_kills(folder, edit, losses=LOSSES, skips=(3, 12), keep_best=True, keep=99)


def on_step(number: int, rank: int, change: Any) -> Edit:
    def edit(kind: str, thing: Any) -> None:
        if kind == "event" and thing["event"] == "step" and (thing["step"], thing["rank"]) == (number, rank):
            change(thing)

    return edit


def on_shard(number: int, change: Any) -> Edit:
    return lambda kind, thing: change(thing) if kind == "shard" and thing["step"] == number else None


def progress(**changes: Any) -> Any:
    def change(thing: dict[str, Any]) -> None:
        thing["texts"]["progress"] = json.dumps({**json.loads(thing["texts"]["progress"]), **changes})

    return change


def test_a_whole_record_is_valid(tmp_path: Path, judged: Judge) -> None:
    judged(rich(tmp_path / "run").folder, 4, "valid")


def test_a_first_loss_that_is_not_finite_is_no_best(tmp_path: Path, judged: Judge) -> None:
    losses = {1: -math.inf, 2: math.nan, 3: 0.5}
    judged(two_kills(tmp_path / "run", losses=losses, skips=(1, 2), keep_best=True, keep=99).folder, 4, "valid")


@pytest.mark.parametrize(
    ("edit", "words"),
    [
        (on_shard(6, progress(best_step=2)), "is 0x1.999999999999ap-2 of step 2, but the lowest loss up to here is "
                                             "0x1.999999999999ap-2 of step 5"),
        (on_shard(6, progress(best_metric=(0.1).hex())), "best metric of rank 0 is 0x1.999999999999ap-4 of step 5"),
        (on_shard(4, progress(best_metric=None, best_step=None)), "best metric of rank 1 is None of step None"),
        (on_shard(4, lambda t: t["texts"].update(best='{"metric": null, "step": null}')),
         "the best model of rank 0 belongs to step None, its best metric to 2"),
        (on_step(6, 1, lambda t: t["state"].update(best=t["state"]["model"])),
         "step 6 of attempt 1 on rank 1: the best model is not that of step 5, which had the lowest loss so far"),
        (on_step(5, 0, lambda t: t["state"].update(best="0" * 16)),
         "step 5 of attempt 0 on rank 0: the best model is not"),
        (on_step(3, 0, lambda t: t["state"].update(model="0" * 16)),
         "step 3 of attempt 0 on rank 0 skipped its update, but the model changed"),
        (on_step(3, 1, lambda t: t.update(skipped=False)), "step 3 of attempt 0 was skipped on some ranks only"),
        (on_step(3, 1, lambda t: t.update(skipped=False)),
         "rank 1 did its update, and a finding says that it skipped it"),
        (on_step(6, 1, lambda t: t.update(skipped=True)),
         "step 6 of attempt 1 on rank 1 skipped its update, and no finding"),
    ],
)  # fmt: skip
def test_a_record_that_contradicts_itself(tmp_path: Path, judged: Judge, edit: Edit, words: str) -> None:
    judged(rich(tmp_path / "run", edit).folder, 4, "invalid", words)


def test_a_finding_is_needed_for_each_skip(tmp_path: Path, judged: Judge) -> None:
    def edit(kind: str, thing: Any) -> None:
        if kind == "event" and thing["event"] == "non_finite" and thing["step"] == 3 and thing["rank"] == 1:
            thing["action"] = "stop"

    judged(rich(tmp_path / "run", edit).folder, 4, "invalid", "rank 1 skipped its update, and no finding says why")


def test_a_copy_that_follows_the_model_is_found_in_the_shard(tmp_path: Path, judged: Judge) -> None:
    """The best tensors are those of the last model: digests agree with each other, not with the manifest's."""

    def alias(thing: dict[str, Any]) -> None:
        for name in [name for name in thing["mine"] if name.startswith("best/")]:
            thing["mine"][name] = np.full(4, 99, np.float32)

    words = "part best, computed from the shards, is not"
    judged(rich(tmp_path / "run", on_shard(6, alias)).folder, 4, "invalid", words)


@pytest.mark.parametrize("lost", ["best", "best.buffers"])
def test_half_a_best_model_is_no_checkpoint(tmp_path: Path, judged: Judge, lost: str) -> None:
    def edit(kind: str, thing: Any) -> None:
        if kind == "manifest" and thing["step"] == 4:
            (thing["parts"] if lost == "best" else thing["ranks"][1]["parts"]).pop(lost)

    judged(rich(tmp_path / "run", edit).folder, 1, "invalid", "digests only a part of the best model")


def test_without_a_record_there_is_nothing_to_contradict(tmp_path: Path, judged: Judge) -> None:
    def edit(kind: str, thing: Any) -> None:
        if kind == "event" and thing["event"] == "step" and thing["step"] in (2, 3):
            thing["drop"] = True
        if kind == "shard" and thing["step"] == 12:
            progress(best_step=1)(thing)
            thing["texts"]["best"] = json.dumps({**json.loads(thing["texts"]["best"]), "step": 1})

    judged(rich(tmp_path / "run", edit).folder, 4, "valid")


def test_a_loss_that_is_no_number_is_none(tmp_path: Path, judged: Judge) -> None:
    def edit(kind: str, thing: Any) -> None:
        for rank in (0, 1):
            on_step(1, rank, lambda t: t.update(loss="x"))(kind, thing)

    witness = judged(rich(tmp_path / "run", edit).folder, 4, "invalid", "for step 1, the record x")
    assert "x of step" not in witness


# -- the best so far, beside a walk over the losses

_NUMBERS = [number.hex() for number in (-1.5, 0.0, 0.25, 0.5, 0.75, math.inf, -math.inf, math.nan)]
_LOSSES = st.lists(st.sampled_from([*_NUMBERS, "x", "", "0x1p+99999"]), max_size=8)


def walked(before: Best, start: int, losses: list[str]) -> list[Best]:
    """The best before any of the losses, after the first of them, and so on."""
    found = [before]
    for number, loss in enumerate(losses, start + 1):
        try:
            value = float.fromhex(loss)
        except (ValueError, OverflowError):
            value = math.nan
        best = found[-1]
        lower = math.isfinite(value) and (best.metric is None or value < float.fromhex(best.metric))
        found.append(Best(loss, number) if lower else best)
    return found


@settings(max_examples=50, deadline=None)
@given(_LOSSES, st.integers(0, 3), st.sampled_from([Best(), Best((0.5).hex(), 1), Best((-2.0).hex(), 2)]))
def test_the_best_of_each_step_is_the_lowest_finite_loss_so_far(losses: list[str], start: int, before: Best) -> None:
    bests = Bests()
    bests.add(4, start, before, losses)
    for number, best in enumerate(walked(before, start, losses), start):
        assert bests.get((4, number)) == best
    for place in ((4, start - 1), (4, start + len(losses) + 1), (5, start), (5, 0), (5, -1), (0, 0)):
        assert bests.get(place) is None


def updates(attempt: int | None, rank: int, *losses: float, after: int = 0) -> list[Line]:
    return [(attempt, step(rank, n, loss=loss.hex())) for n, loss in enumerate(losses, after + 1)]


def best_of(bests: Bests, attempt: int, step: int) -> tuple[float | None, int | None] | None:
    """The loss as a number, and its step."""
    best = bests.get((attempt, step))
    return None if best is None else (None if best.metric is None else float.fromhex(best.metric), best.step)


def test_the_best_goes_on_from_the_checkpoint_that_an_attempt_started_from() -> None:
    lines = [*updates(0, 0, 0.5, 0.9, 0.3), *updates(1, 0, 0.6, after=2), *updates(2, 0, 0.7),
             *updates(3, 0, 0.4, 0.2, after=3)]  # fmt: skip
    entries = Entries().fence().choose(None).publish(2, 3).fence().take(checkpoint(2, 0)).publish(3)
    entries.fence().choose(None).fence().take(checkpoint(3, 1))
    bests = running_best(evidence(entries, [recorded("worker", 1, *lines)]))
    assert [best_of(bests, 0, step) for step in range(5)] == [(None, None), (0.5, 1), (0.5, 1), (0.3, 3), None]
    assert [best_of(bests, 1, step) for step in range(1, 5)] == [None, (0.5, 1), (0.5, 1), None]
    assert [best_of(bests, 2, step) for step in range(3)] == [(None, None), (0.7, 1), None]
    assert [best_of(bests, 3, step) for step in range(2, 7)] == [None, (0.5, 1), (0.4, 4), (0.2, 5), None]


def test_the_best_is_not_known_behind_a_step_without_a_record() -> None:
    lines = [*updates(0, 0, 0.5), *updates(0, 0, 0.3, after=2), *updates(1, 0, 0.6, after=3)]
    entries = Entries().fence().choose(None).publish(3).fence().take(checkpoint(3, 0))
    bests = running_best(evidence(entries, [recorded("worker", 1, *lines)]))
    assert [best_of(bests, 0, step) for step in range(4)] == [(None, None), (0.5, 1), None, None]
    assert [best_of(bests, 1, step) for step in (3, 4)] == [None, None]


def test_of_several_ranks_losses_that_of_the_last_file_counts_and_no_attempt_is_the_first() -> None:
    entries = Entries().fence().choose(None)
    files = [recorded("worker", 1, *updates(None, 1, 0.5)), recorded("worker", 2, *updates(None, 0, 0.6))]
    assert best_of(running_best(evidence(entries, files)), 0, 1) == (0.6, 1)


# -- skips and best models of a few lines

FIRST = Entries().fence().choose(None)


def contradictions(*lines: Line, others: tuple[HistoryFile, ...] = ()) -> list[str]:
    case = Case()
    judge_record(evidence(FIRST, [recorded("worker", 1, *lines), *others]), case)
    return case.wrong


def update(rank: int, number: int, model: str | None, skipped: bool = False, attempt: int | None = 0,
           **others: Any) -> Line:  # fmt: skip
    """The model after it, and whatever else it has."""
    state = {} if model is None else {"model": model}
    best = others.pop("best", None)
    done = step(rank, number, state=state | ({} if best is None else {"best": best}), skipped=skipped, **others)
    return attempt, done


def finding(rank: int, number: int, action: str = "skip", attempt: int | None = 0) -> Line:
    return attempt, NonFinite(rank, number, "gradient", action)


def restored(rank: int, number: int, attempt: int = 0, **state: str) -> Line:
    return attempt, Restored(rank, None, None, number, 0, {}, state)


WHERE = "step 2 of attempt 0 on rank 0"
NO_FINDING = f"{WHERE} skipped its update, and no finding says why"
DID = f"{WHERE} did its update, and a finding says that it skipped it"
CHANGED = f"{WHERE} skipped its update, but the model changed"


@pytest.mark.parametrize(
    ("lines", "words"),
    [
        ([update(0, 2, "a", True), finding(0, 2)], []),
        ([update(0, 2, "b")], []),
        ([update(0, 2, "a")], []),
        ([update(0, 2, "a", True)], [NO_FINDING]),
        ([update(0, 2, "a", True), finding(0, 2, "stop")], [NO_FINDING]),
        ([update(0, 2, "a", True), finding(1, 2)], [NO_FINDING]),
        ([update(0, 2, "a", True), finding(0, 2, attempt=1)], [NO_FINDING]),
        (
            [update(0, 2, "a", True), finding(0, 3), finding(0, 1)],
            [f"step 1 of attempt 0 on rank 0{DID[29:]}", NO_FINDING],
        ),
        ([update(0, 2, "b"), finding(0, 2)], [DID]),
        ([update(0, 2, "b", True), finding(0, 2)], [CHANGED]),
        ([update(0, 2, None, True), finding(0, 2)], [CHANGED]),
        ([update(0, 2, "b", True)], [NO_FINDING, CHANGED]),
    ],
)
def test_a_skipped_update_is_explained_and_leaves_the_model(lines: list[Line], words: list[str]) -> None:
    start = [restored(0, 0, model="0"), update(0, 1, "a")]
    assert contradictions(*start, *lines) == words


def test_what_a_rank_restored_is_the_state_before_its_first_update() -> None:
    skip = [update(0, 2, "a", True), finding(0, 2)]
    assert contradictions(restored(0, 1, model="a"), *skip) == []
    assert contradictions(restored(0, 1, model="b"), *skip) == [CHANGED]
    for other in (
        restored(1, 1, model="b"),
        restored(0, 1, 1, model="b"),
        *(restored(0, n, model="b") for n in (0, 2, 3)),
    ):
        assert contradictions(other, *skip) == []
    assert contradictions(restored(0, 1, model="b"), update(0, 1, "a"), *skip) == []


def test_without_the_state_before_a_skip_is_not_judged() -> None:
    assert contradictions(update(0, 2, "a", True)) == []
    assert contradictions(update(0, 2, "a"), finding(0, 2)) == []
    assert contradictions(update(0, 0, "a"), update(0, 2, "a", True)) == []


def test_ranks_and_attempts_have_their_own_states() -> None:
    """Rank 1 and attempt 1 have other models, before and behind."""
    one = recorded("worker", 2, update(1, 1, "b"), update(1, 2, "b", True), finding(1, 2))
    later = recorded(
        "worker", 3, update(0, 1, "c", attempt=1), update(0, 2, "c", True, attempt=1), finding(0, 2, attempt=1)
    )
    mine = [update(0, 1, "a"), update(0, 2, "a", True), finding(0, 2)]
    assert contradictions(*mine, others=(one, later)) == []
    changed = recorded("worker", 2, update(1, 1, "a"), update(1, 2, "b", True), finding(1, 2))
    words = "step 2 of attempt 0 on rank 1 skipped its update, but the model changed"
    assert contradictions(*mine, others=(changed, later)) == [words]


def test_all_ranks_of_an_attempt_skip_or_none() -> None:
    def ranks(*skipped: bool, number: int = 2, attempt: int = 0) -> list[Line]:
        return [line for rank, skips in enumerate(skipped)
                for line in (update(rank, number - 1, "a", attempt=attempt), update(rank, number, "a", skips, attempt),
                             *([finding(rank, number, attempt=attempt)] if skips else []))]  # fmt: skip

    assert contradictions(*ranks(True, True)) == contradictions(*ranks(False, False)) == []
    assert contradictions(*ranks(True, True), *ranks(False, False, attempt=1)) == []
    assert contradictions(*ranks(True), *ranks(False, False, number=4)) == []
    found = contradictions(*ranks(False, True, number=5, attempt=1), *ranks(True, False), *ranks(True, False, number=4))
    assert found == [f"step {step} of attempt {attempt} was skipped on some ranks only"
                     for attempt, step in ((0, 2), (0, 4), (1, 5))]  # fmt: skip


def test_updates_of_no_attempt_are_the_first_ones() -> None:
    skip = [update(0, 1, "a", attempt=None), update(0, 2, "a", True, attempt=None)]
    assert contradictions(*skip) == [NO_FINDING]
    assert contradictions(*skip, finding(0, 2)) == []


def says_best(step: int, best: int) -> str:
    words = f"the best model is not that of step {best}, which had the lowest loss so far"
    return f"step {step} of attempt 0 on rank 0: {words}"


def with_best(*states: tuple[float, str, str | None]) -> list[Line]:
    """loss, model and best model after each update. An update has the loss of the model before it."""
    return [update(0, n, model, loss=loss.hex(), best=best) for n, (loss, model, best) in enumerate(states, 1)]


@pytest.mark.parametrize(
    ("states", "words"),
    [
        ([(0.5, "b", "a"), (0.6, "c", "a"), (0.4, "d", "c"), (0.4, "e", "c")], []),
        ([(0.5, "b", "a"), (0.6, "c", "b")], [says_best(2, 1)]),
        ([(0.5, "b", "b"), (0.6, "c", "b"), (0.4, "d", "d")], [says_best(1, 1), says_best(3, 3)]),
        ([(0.5, "b", "a"), (0.5, "c", "b")], [says_best(2, 1)]),
        ([(0.5, "b", "a"), (0.6, "c", None), (0.4, "d", "d")], [says_best(2, 1)]),
        ([(math.nan, "b", "0"), (0.4, "c", "b")], []),
        ([(math.nan, "b", "a")], [says_best(1, 0).replace("step 0", "step None")]),
    ],
)
def test_the_best_model_is_that_of_the_lowest_loss(
    states: list[tuple[float, str, str | None]], words: list[str]
) -> None:
    assert contradictions(restored(0, 0, model="a", best="0"), *with_best(*states)) == words


def test_a_best_model_is_judged_where_only_the_steps_or_only_the_restored_state_have_one() -> None:
    wrong = with_best((0.5, "b", "a"), (0.6, "c", "b"))
    assert contradictions(*wrong) == [says_best(2, 1)]
    assert contradictions(restored(0, 0, model="a"), *wrong) == [says_best(2, 1)]
    assert contradictions(restored(0, 0, model="a", best="0"), *with_best((0.5, "b", None))) == [says_best(1, 1)]
    assert contradictions(restored(0, 0, model="a"), *with_best((0.5, "b", "x"))) == []


def test_a_best_model_of_an_unknown_best_is_not_judged() -> None:
    """The loss of the first update has no record."""
    assert contradictions(*with_best((0.5, "b", "a"), (0.6, "c", "a"), (0.4, "d", "x"))[1:]) == []
