"""Which trials are drawn up, and what each is predicted to cost: by hand, for a run of nine steps."""

from __future__ import annotations

from collections import Counter
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import yaml

from chaos.errors import SweepError
from chaos.experiment import packaged_experiment, parse_experiment
from chaos.points import Role
from chaos.schema import RunSettings
from chaos.sweep import predict
from chaos.sweep.command import Choice, Watch, sweep_in
from chaos.sweep.outline import Outline
from chaos.sweep.predict import Prediction
from chaos.sweep.trials import base, chosen, gates, notices, pairs, recoveries, singles

RUN = RunSettings(workload="tiny", ranks=2, global_batch=8, microbatches=2, steps=9, save_every=3, keep=2)
TRAINING = {"step.begin": 9, "microbatch.backward": 18, "reduce.before": 9, "reduce.after": 9, "step.end": 9}
SAVES = {"save.staged": 3, "save.queued": 3, "shard.half": 3, "save.reported": 3, "save.done": 3}
RECOVERY = {
    "recover.joined": 1, "recover.load.half": 1, "recover.restored": 1, "recover.first_step": 1, "step.begin": 6,
}  # fmt: skip
OUTLINE = Outline(
    RUN,
    {
        (Role.RANK, 0): {**TRAINING, **SAVES},
        (Role.RANK, 1): {**TRAINING, **SAVES},
        (Role.COMMITTER, None): {"publish.before": 3, "publish.after": 3, "log.before_link": 4, "log.after_link": 4,
                                 "retire.before": 1, "retire.between": 2},
        (Role.SUPERVISOR, None): {"recover.fence.after": 1, "log.after_link": 2},
        (Role.STANDBY, None): {"standby.warm": 1},
        (Role.DATA, 1): {"data.read": 2},
    },
    {(Role.RANK, 0): RECOVERY, (Role.SUPERVISOR, None): {"recover.choose.after": 1, "log.after_link": 1}},
    {"recover.detected": 1, "log.after_link": 3},
    ("publish", "publish", "publish", "retire"),
)  # fmt: skip


@pytest.mark.parametrize(
    ("point", "hit", "restored", "finished"),
    [
        ("step.begin", 1, (0,), (0, 0)),
        ("step.begin", 4, (0, 3), (3, 3)),
        ("microbatch.backward", 7, (0, 3), (3, 3)),  # the first of step 4
        ("microbatch.backward", 8, (0, 3), (3, 3)),
        ("reduce.before", 9, (3, 6), (8, 8)),
        ("reduce.after", 3, (0,), (2, 3)),  # a peer may have finished step 3, and no save can be whole
        ("step.end", 3, (0,), (3, 3)),
        ("step.end", 9, (3, 6), (9, 9)),
        ("save.staged", 2, (3,), (6, 6)),  # it waited for the save before
        ("save.queued", 2, (3, 6), (6, 6)),
        ("ledger.data_synced", 2, (3,), (6, 9)),
        ("shard.half", 1, (0,), (3, 6)),  # training goes on, up to the next save
        ("save.reported", 2, (3,), (6, 9)),
        ("save.done", 2, (6,), (6, 9)),
        ("save.done", 3, (9,), (9, 9)),
    ],
)
def test_a_killed_rank(point: str, hit: int, restored: tuple[int, ...], finished: tuple[int, int]) -> None:
    assert predict.of_rank(OUTLINE, point, hit) == Prediction(restored, finished)


@pytest.mark.parametrize(
    ("point", "hit", "restored", "finished"),
    [
        ("publish.before", 1, (0,), (3, 6)),
        ("publish.after", 1, (3,), (3, 6)),
        ("manifest.after_unlink", 2, (3,), (6, 9)),
        ("log.before_link", 2, (3,), (6, 9)),
        ("log.after_link", 2, (6,), (6, 9)),
        ("log.after_unlink", 2, (6,), (6, 9)),
        ("log.before_link", 4, (9,), (9, 9)),  # of the retire entry
        ("retire.before", 1, (9,), (9, 9)),
        ("retire.after_unlink", 2, (9,), (9, 9)),
        ("retire.between", 2, (9,), (9, 9)),
    ],
)
def test_a_killed_committer(point: str, hit: int, restored: tuple[int, ...], finished: tuple[int, int]) -> None:
    assert predict.of_committer(OUTLINE, point, hit) == Prediction(restored, finished)


@pytest.mark.parametrize(
    ("point", "hit", "restored"),
    [
        ("microbatch.backward", 7, (4,)),  # it lies in step 4, which is finished and saved
        ("reduce.before", 4, (4,)),
        ("reduce.after", 4, (5,)),  # too late for the reduction of step 4
        ("step.end", 9, (9,)),  # saved anyway
        ("save.staged", 1, (4,)),
        ("shard.half", 1, (4, 5, 6, 7)),  # the save of step 6 waits for this one
        ("save.done", 3, (9,)),
        ("recover.joined", 1, (1,)),
        ("user.evaluation", 5, (1, 2, 3, 4, 5, 6, 7, 8, 9)),
    ],
)
def test_a_rank_that_is_given_notice(point: str, hit: int, restored: tuple[int, ...]) -> None:
    expected = predict.of_notice(OUTLINE, point, hit)
    assert {(step, redo) for step in range(11) for redo in range(10) if expected.met(step, redo)} == {
        (step, 0) for step in restored
    }
    assert expected.to_json()["redo_steps"] == [0, 0]


def test_notices_are_for_ranks_in_training() -> None:
    found = list(notices(OUTLINE))
    assert len(found) == 2 * (9 + 18 + 9 + 9 + 9 + 5 * 3)
    assert found[0].name == "sigterm:rank0/step.begin/1"
    assert {fault["kind"] for trial in found for fault in trial.faults} == {"sigterm"}
    assert {trial.where[1][0] for trial in found} == {Role.RANK}


def test_a_prediction_is_met_by_what_it_allows_and_by_nothing_else() -> None:
    expected = Prediction((3, 6), (7, 8))
    allowed = {(restored, redo) for restored in range(10) for redo in range(10) if expected.met(restored, redo)}
    assert allowed == {(3, 4), (3, 5), (6, 1), (6, 2)}
    assert not expected.exact
    assert Prediction((3,), (4, 4)).exact
    assert expected.to_json()["redo_steps"] == [1, 5]


def test_a_recovery_that_is_cut_short_restores_nothing() -> None:
    expected = Prediction((3,), (4, 4), cut_short=True)
    assert expected.met(None, None)
    assert not expected.met(3, 1)
    assert not Prediction((3,), (4, 4)).met(None, None)


def test_one_trial_for_each_passage() -> None:
    found = list(singles(OUTLINE))
    assert len({trial.name for trial in found}) == len(found)
    clean = sum(hits for points in OUTLINE.clean.values() for hits in points.values())
    assert len(found) == clean + 2  # and the supervisor's detection and next fence, which take a kill to come by
    by_role = Counter(trial.where[1][0] for trial in found)
    assert (by_role[Role.DATA], by_role[Role.STANDBY], by_role[Role.SUPERVISOR]) == (2, 1, 5)
    assert all(not trial.predictions for trial in found if trial.where[1][0] in (Role.DATA, Role.STANDBY))
    assert [trial.name for trial in found if trial.own_supervisor] == [
        "supervisor/recover.fence.after/1", "supervisor/log.after_link/1", "supervisor/log.after_link/2",
        "supervisor/recover.detected/1", "supervisor/log.after_link/3",
    ]  # fmt: skip


def test_a_kill_in_the_recovery_follows_one_whose_restore_is_known() -> None:
    found = {trial.name: trial for trial in recoveries(OUTLINE)}
    assert found.keys() == {
        *(f"rank0/{point}/1@1" for point in RECOVERY if point != "step.begin"),
        "supervisor/recover.choose.after/1@1", "supervisor/log.after_link/1@1",
    }  # fmt: skip
    joined = found["rank0/recover.joined/1@1"]
    assert [fault["at"]["attempt"] for fault in joined.faults] == [0, 1]
    assert joined.faults[0] == base(OUTLINE).faults[0]
    known = Prediction((3,), (4, 4))
    assert joined.predictions == (replace(known, cut_short=True), known)  # it dies before anything is chosen
    assert found["rank0/recover.restored/1@1"].predictions == (known, known)
    assert found["rank0/recover.first_step/1@1"].predictions[1] == Prediction((3,), (4, 4))


def test_behind_a_gate_everything_is_known() -> None:
    found = list(gates(OUTLINE))
    assert {trial.name for trial in found} == {
        f"rank{rank}/gate:{stage}/2" for rank in (0, 1) for stage in ("shard.half", "save.reported", "save.done")
    }  # fmt: skip
    assert all(trial.gated and trial.predictions[0].exact for trial in found)
    restored = {trial.faults[0]["gate"]["point"]: trial.predictions[0].restored for trial in found}
    assert restored == {"shard.half": (3,), "save.reported": (3,), "save.done": (6,)}


@pytest.mark.no_cover
def test_every_trial_is_an_experiment_that_can_be_read() -> None:
    for trial in [*singles(OUTLINE), *gates(OUTLINE), *recoveries(OUTLINE), *pairs(OUTLINE, 40, 1)]:
        text = yaml.safe_dump({"run": RUN.model_dump(mode="json"), "faults": list(trial.faults)})
        assert len(parse_experiment(text).faults) == len(trial.faults)


def test_pairs_are_drawn_without_repetition_and_only_where_both_are_sure_to_strike() -> None:
    found = pairs(OUTLINE, 10_000, 1)
    assert len({trial.name for trial in found}) == len(found)
    for trial in found:
        first, second = trial.predictions
        point = trial.faults[1]["at"]["point"]
        if point == "recover.load.half":
            assert min(first.restored) > 0  # a start from nothing loads nothing
        if point == "recover.first_step":
            assert max(first.restored) < RUN.steps
            assert second.finished == (min(first.restored) + 1, max(first.restored) + 1)
    few = pairs(OUTLINE, 5, 1)
    assert [trial.name for trial in few] == [trial.name for trial in pairs(OUTLINE, 5, 1)]
    assert [trial.name for trial in few] != [trial.name for trial in pairs(OUTLINE, 5, 2)]


def test_a_choice_narrows_by_point_rank_and_number() -> None:
    found = list(singles(OUTLINE))
    assert {t.where[0] for t in chosen(found, ["shard.half"], [], None, 0)} == {"shard.half"}
    assert {t.where[1][1] for t in chosen(found, [], [1], None, 0)} == {1, None}
    drawn = chosen(found, [], [], 7, 3)
    assert len(drawn) == 7
    assert drawn == [trial for trial in found if trial in drawn]
    assert drawn == chosen(found, [], [], 7, 3) != chosen(found, [], [], 7, 4)


def test_without_a_checkpoint_before_the_end_the_first_kill_leaves_nothing() -> None:
    late = replace(OUTLINE, run=RUN.model_copy(update={"save_every": 9}))
    trial = base(late)
    assert trial.predictions == (Prediction((0,), (8, 8)),)
    assert "gate" not in trial.faults[0]
    assert trial.faults[0]["at"]["hit"] == 17


def test_behind_a_gate_of_the_last_step_there_is_no_step_to_be_killed_in() -> None:
    assert not list(gates(replace(OUTLINE, run=RUN.model_copy(update={"save_every": 9}))))


@pytest.mark.parametrize(
    ("choice", "words"),
    [(Choice(ranks=(0, 9)), "--rank 9: the experiment has the ranks 0 to 1"),
     (Choice(points=("shard.haf",)), "--point shard.haf: there is no such point; the nearest is shard.half"),
     (Choice(points=("qqqqqqqq",)), "`killpoint points` lists")],
)  # fmt: skip
def test_what_cannot_be_there_is_refused_before_anything_is_written(
    tmp_path: Path, choice: Choice, words: str
) -> None:
    nothing: Any = None
    with pytest.raises(SweepError, match=words):
        sweep_in(nothing, packaged_experiment("sweep.yaml"), tmp_path / "out", choice, 60.0, Watch())
    assert not (tmp_path / "out").exists()
