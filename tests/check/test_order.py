"""Which kills come first, by hand for a run of nine steps."""

from __future__ import annotations

from collections import Counter
from dataclasses import replace

import pytest
from check_kit import OUTLINE, RUN, SPOTS, done

from chaos.check.coverage import coverage, passages_of
from chaos.check.order import GROUPS, Stage, every_point_once, group_of, plan, spot_of
from chaos.points import CATALOGUE, Role
from chaos.sweep.trials import pairs, recoveries, singles


def test_every_point_of_every_role_is_struck_once() -> None:
    found = every_point_once(OUTLINE)
    assert Counter(map(spot_of, found)) == Counter(SPOTS)


def test_the_ranks_take_turns() -> None:
    ranks = Counter(trial.where[1][1] for trial in every_point_once(OUTLINE) if trial.where[1][0] is Role.RANK)
    assert set(ranks) == {0, 1}
    assert abs(ranks[0] - ranks[1]) <= 2


def test_a_point_of_the_recovery_is_struck_in_a_recovery_and_others_where_a_checkpoint_is_restored() -> None:
    ats = {spot_of(trial): trial.faults[-1]["at"] for trial in every_point_once(OUTLINE)}
    assert ats[Role.RANK, "recover.joined"]["attempt"] == 1  # passed at the start, too, where there is nothing to lose
    assert (ats[Role.RANK, "step.begin"]["attempt"], ats[Role.RANK, "step.begin"]["hit"]) == (0, 8)
    assert ats[Role.RANK, "shard.half"]["hit"] == 2
    assert ats[Role.RANK, "user.mine"]["hit"] == 15  # step 8 of 9; saves fell due after 3 and 6
    for trial in every_point_once(OUTLINE):
        if trial.predictions and not trial.where[0].startswith("user."):
            assert min(trial.predictions[0].restored) > 0, trial.name


def test_where_nothing_is_sure_to_be_restored_the_middle_has_to_do() -> None:
    rank = (Role.RANK, 0)
    clean = {rank: {"step.begin": 9, "user.mine": 18}}
    short = replace(OUTLINE, run=RUN.model_copy(update={"save_every": 9}), clean=clean, recovery={}, detection={})
    ats = {spot_of(trial): trial.faults[-1]["at"] for trial in every_point_once(short)}
    assert {spot: at["hit"] for spot, at in ats.items()} == {
        (Role.RANK, "step.begin"): 5, (Role.RANK, "user.mine"): 9,
    }  # fmt: skip


def test_whoever_is_cut_off_early_has_seen_something_of_every_group() -> None:
    found = [group_of(trial.where[0]) for trial in every_point_once(OUTLINE)]
    assert found[:9] == ["user", "recovery", "save", "step", "commit", "retire", "log", "data", "standby"]


def test_supervisors_are_last_of_their_stage() -> None:
    for stage in Stage:
        own = [each.trial.own_supervisor for each in plan(OUTLINE, (), {"log"}, 0) if each.stage is stage]
        assert own == sorted(own)


def test_stages_follow_one_another_and_no_trial_comes_twice() -> None:
    found = plan(OUTLINE, (), {"save"}, 0)
    stages = [each.stage for each in found]
    assert stages == sorted(stages, key=list(Stage).index)
    assert set(stages) == set(Stage)
    assert len({each.trial.name for each in found}) == len(found)
    everything = {trial.name for trial in (*singles(OUTLINE), *recoveries(OUTLINE))}
    assert everything <= {each.trial.name for each in found}


def test_what_changed_code_bears_on_comes_before_pairs_and_the_rest_after() -> None:
    found = plan(OUTLINE, (), {"retire", "save"}, 0)
    changed = [each.trial.name for each in found if each.stage is Stage.CHANGED]
    assert "rank0/gate:shard.half/2" in changed  # killed in training, but about the save
    assert "rank1/save.staged/3" in changed
    assert not any("step.begin" in name for name in changed)
    assert not [each for each in plan(OUTLINE, (), (), 0) if each.stage is Stage.CHANGED]


def test_a_choice_of_points_holds_for_every_stage() -> None:
    found = plan(OUTLINE, ("step.begin",), set(GROUPS), 0)
    assert {each.trial.where[0] for each in found} == {"step.begin"}
    (once,) = [each.trial.name for each in found if each.stage is Stage.ONCE]
    assert once in ("rank0/step.begin/8", "rank1/step.begin/8")


def test_every_group_of_the_catalogue_has_its_turn() -> None:
    assert {point.group for point in CATALOGUE.values()} | {"user"} == set(GROUPS)


def test_coverage_counts_points_by_role_and_passages_by_hit() -> None:
    found = plan(OUTLINE, (), (), 0)
    once = [each for each in found if each.stage is Stage.ONCE]
    results = {each.trial.name: done(each) for each in once}
    everything = [*singles(OUTLINE), *recoveries(OUTLINE)]
    left = {each.trial.name for each in found} - results.keys()
    whole = coverage(OUTLINE, found, results, left, 60.0, 50.0, 90)
    assert (whole.points_struck, whole.points_passed) == (len(SPOTS), len(SPOTS))
    assert whole.passages_passed == len(everything)
    struck = {passage for each in once for passage in passages_of(each.trial)}  # first kills are passages, too
    assert whole.passages_struck == len(struck)
    assert (whole.whole, whole.would_do_s, whole.missing, whole.not_chosen) == (True, None, (), 0)
    assert [each.stage for each in whole.left] == [Stage.PAIRS, Stage.REST]
    assert whole.left[0].trials == whole.left[0].drawn == len(pairs(OUTLINE, 100, 0))


@pytest.mark.parametrize("why", ["cut", "not struck"])
def test_a_point_that_was_not_struck_is_named_whatever_the_reason(why: str) -> None:
    once = [each for each in plan(OUTLINE, (), (), 0) if each.stage is Stage.ONCE]
    last = once[-1]
    results = {each.trial.name: done(each) for each in once[:-1]}
    if why == "not struck":
        results[last.trial.name] = done(last, struck=len(last.trial.faults) - 1)
    left = {last.trial.name} if why == "cut" else set()
    found = coverage(OUTLINE, once, results, left, 60.0, 58.0, 90)
    assert (found.whole, found.missing) == (False, (last.spot,))
    assert found.points_struck == len(SPOTS) - 1
    assert found.would_do_s == (90 if why == "cut" else None)
    text = " ".join(found.sentences())
    assert f"{last.spot[1]} (supervisor)" in text
    assert ("--budget 90s" in text) == (why == "cut")


def test_points_that_nobody_asked_for_are_counted_as_such() -> None:
    found = plan(OUTLINE, ("step.begin", "shard.half"), (), 0)
    results = {each.trial.name: done(each) for each in found if each.stage is Stage.ONCE}
    covered = coverage(OUTLINE, found, results, set(), None, 5.0, 10)
    assert (covered.whole, covered.points_struck, covered.points_passed) == (True, 2, len(SPOTS))
    assert covered.not_chosen == len(SPOTS) - 2
    assert "were not asked for" in " ".join(covered.sentences())
