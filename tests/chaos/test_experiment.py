"""Experiment files: what they mean, and errors that name file, line and field."""

from __future__ import annotations

import importlib
import re
from pathlib import Path

import pytest
import yaml
from hypothesis import given
from hypothesis import strategies as st

from chaos.errors import ExperimentError, UnknownPoint
from chaos.experiment import Experiment, default_text, load_experiment, parse_experiment
from chaos.faults import Fault, FaultKind, Gate
from chaos.points import Role
from chaos.rules import BUILT_IN_WORKLOADS
from chaos.schema import RunSettings

BASE = """\
run:
  workload: tiny
  seed: 3
  ranks: 2
  global_batch: 16
  microbatches: 2
  steps: 10
  save_every: 4
"""
FAULT = (
    BASE
    + """\
faults:
  - kind: sigkill
    at: {attempt: 0, role: rank, rank: 1, point: step.end, hit: 4}
"""
)


def read(text: str, seed: int | None = None) -> Experiment:
    return parse_experiment(text, Path("e.yaml"), seed=seed)


def test_the_default_experiment_is_the_one_of_the_issue() -> None:
    experiment = load_experiment(None)
    run = experiment.run
    assert (run.workload, run.ranks, run.microbatches, run.global_batch) == ("bytelm", 2, 4, 16)
    assert (run.steps, run.save_every, run.keep, run.standbys) == (60, 7, 3, 1)
    assert experiment.faults == (
        Fault("f0", FaultKind.SIGKILL, 0, Role.RANK, 1, "microbatch.backward", 71),
        Fault("f1", FaultKind.SIGKILL, 1, Role.RANK, 0, "shard.half", 2),
    )
    assert experiment.text == default_text()


def test_a_gate_and_a_user_point() -> None:
    (fault,) = read(
        BASE
        + """\
faults:
  - kind: hang
    at: {rank: 0, point: user.eval, hit: 2}
    gate: {role: committer, point: publish.before, hit: 2}
"""
    ).faults
    assert fault.gate == Gate(Role.COMMITTER, None, "publish.before", 2)
    assert (fault.kind, fault.point, fault.hit) == (FaultKind.HANG, "user.eval", 2)
    assert Fault.from_json(fault.to_json()) == fault


def test_a_hit_is_the_first_one_if_none_is_given() -> None:
    (fault,) = read(BASE + "faults: [{at: {rank: 0, point: step.end}}]").faults
    assert (fault.kind, fault.attempt, fault.hit) == (FaultKind.SIGKILL, 0, 1)


WRONG = {
    "empty": ("", r"e\.yaml: is empty"),
    "no mapping": ("- 1", r"e\.yaml:1: is not a mapping"),
    "syntax": ("run:\n  workload: [", r"e\.yaml:2: not YAML: expected the node content"),
    "character": ("run: \x00", r"e\.yaml: not YAML: "),
    "no run": ("faults: []", r"e\.yaml:1: run: is missing"),
    "no workload": ("run:\n  seed: 1", r"e\.yaml:1: run\.workload: is missing"),
    "run no mapping": ("run: 5", r"e\.yaml:1: run: must be a mapping, not 5"),
    "duplicate": (BASE + "  seed: 4", r"e\.yaml:9: run\.seed: is given twice, first on line 3"),
    "duplicate below": (
        FAULT + "    gate: {point: step.end, point: x}",
        r"e\.yaml:12: faults\[0\]\.gate\.point: is given twice, first on line 12",
    ),
    "unknown field": (
        BASE + "  microbatchs: 2",
        r"e\.yaml:9: run\.microbatchs: unknown field; did you mean micro",
    ),
    "unknown top": (
        "run: {workload: tiny}\nfault: []",
        r"e\.yaml:2: fault: unknown field; did you mean faults\?",
    ),
    "unknown, nothing near": (BASE + "  zzz: 2", r"e\.yaml:9: run\.zzz: unknown field; known are config, "),
    "unknown in fault": (
        FAULT.replace("kind:", "knd:"),
        r"e\.yaml:10: faults\[0\]\.knd: unknown field; did you mean kind\?",
    ),
    "unknown in at": (
        FAULT.replace("hit:", "hits:"),
        r"e\.yaml:11: faults\[0\]\.at\.hits: unknown field; did you mean hit\?",
    ),
    "unknown in gate": (
        FAULT + "    gate: {point: step.end, rnk: 0}",
        r"e\.yaml:12: faults\[0\]\.gate\.rnk: unknown field; did you mean rank\?",
    ),
    "kind": (
        FAULT.replace("sigkill", "sigquit"),
        r"e\.yaml:10: faults\[0\]\.kind: .*'sigkill'.* not 'sigquit'",
    ),
    "text for a number": (
        BASE.replace("steps: 10", "steps: ten"),
        r"e\.yaml:7: run\.steps: .*integer, not 'ten'",
    ),
    "float for a count": (
        BASE.replace("steps: 10", "steps: 1.5"),
        r"e\.yaml:7: run\.steps: .*integer, not 1\.5",
    ),
    "bool for a count": (
        BASE.replace("steps: 10", "steps: yes"),
        r"e\.yaml:7: run\.steps: .*integer, not True",
    ),
    "no steps": (
        BASE.replace("steps: 10", "steps: 0"),
        r"e\.yaml:7: run\.steps: .*greater than or equal to 1",
    ),
    "keep": (BASE + "  keep: 1", r"e\.yaml:9: run\.keep: .*greater than or equal to 2, not 1"),
    "threads": (BASE + "  threads_per_rank: many", r"e\.yaml:9: run\.threads_per_rank: .*, not 'many'"),
    "deadline": (BASE + "  hang_deadline_s: 0", r"e\.yaml:9: run\.hang_deadline_s: .*greater than 0, not 0"),
    "infinite": (BASE + "  config: {lr: .inf}", r"e\.yaml:9: run\.config\.lr: .*not inf"),
    "nested config": (BASE + "  config: {a: [1]}", r"e\.yaml:9: run\.config\.a: .*, not \[1\]"),
    "workload": (BASE.replace("tiny", "tinny"), r"e\.yaml:2: run\.workload: 'tinny' .*; did you mean tiny\?"),
    "workload without function": (
        BASE.replace("tiny", "'a.b:'"),
        r"e\.yaml:2: run\.workload: 'a\.b:' is neither ",
    ),
    "batch": (
        BASE.replace("global_batch: 16", "global_batch: 18"),
        r"e\.yaml:5: run\.global_batch: 18 is not divisible by .* 2 x 2 = 4; use 16 or 20",
    ),
    "small batch": (
        BASE.replace("global_batch: 16", "global_batch: 3"),
        r"e\.yaml:5: run\.global_batch: .* = 4; use 4",
    ),
    "no checkpoint inside a step": (
        BASE + "  save_every_microbatches: 4",
        r"e\.yaml:9: run\.save_every_microbatches: 4 is a multiple of microbatches \(2\): .* use save_every: 2",
    ),
    "save hit inside steps too high": (
        FAULT.replace("save_every: 4", "save_every: 4\n  save_every_microbatches: 3").replace(
            "step.end, hit: 4", "shard.half, hit: 10"
        ),
        r"at\.hit: 10: shard\.half is passed at most 9 times",
    ),
    "rank": (FAULT.replace("rank: 1", "rank: 2"), r"e\.yaml:11: faults\[0\]\.at\.rank: 2: ranks are 0 to 1"),
    "negative rank": (FAULT.replace("rank: 1", "rank: -1"), r"e\.yaml:11: faults\[0\]\.at\.rank: .*, not -1"),
    "no rank": (FAULT.replace("rank: 1, ", ""), r"e\.yaml:11: faults\[0\]\.at\.rank: is missing: .* 0 to 1"),
    "attempt": (
        FAULT.replace("attempt: 0", "attempt: 8"),
        r"e\.yaml:11: faults\[0\]\.at\.attempt: 8: attempts are 0 to 7",
    ),
    "hit": (
        FAULT.replace("hit: 4", "hit: 0"),
        r"e\.yaml:11: faults\[0\]\.at\.hit: .*greater than or equal to 1",
    ),
    "hit too high": (
        FAULT.replace("hit: 4", "hit: 11"),
        r"e\.yaml:11: faults\[0\]\.at\.hit: 11: step\.end is passed at most 10",
    ),
    "save hit too high": (
        FAULT.replace("step.end, hit: 4", "shard.half, hit: 4"),
        r"at\.hit: 4: shard\.half is passed at most 3 times",
    ),
    "microbatch hit too high": (
        FAULT.replace("step.end, hit: 4", "microbatch.forward, hit: 21"),
        r"microbatch\.forward is passed at most 20",
    ),
    "point": (
        FAULT.replace("step.end", "step.ends"),
        r"e\.yaml:11: faults\[0\]\.at\.point: there is no kill point 'step\.ends'; the nearest is step\.end",
    ),
    "far point": (FAULT.replace("step.end", "qqqq"), r"no kill point 'qqqq'; `killpoint points` lists them"),
    "bare user point": (FAULT.replace("step.end", "user."), r"there is no kill point 'user\.'"),
    "role": (
        FAULT.replace("step.end", "publish.before"),
        r"at\.role: rank: publish\.before is passed by role committer only",
    ),
    "rank of a committer": (
        FAULT.replace(
            "role: rank, rank: 1, point: step.end", "role: committer, rank: 1, point: publish.after"
        ).replace("hit: 4", "hit: 1"),
        r"at\.rank: 1: role committer has no rank; leave it out",
    ),
    "neither": (
        FAULT.replace(", point: step.end, hit: 4", ""),
        r"faults\[0\]\.at: needs exactly one of point \(with hit\), after_s and random_s; has none",
    ),
    "both": (
        FAULT.replace("hit: 4", "hit: 4, after_s: 1"),
        r"at: needs exactly one .*; has point and after_s",
    ),
    "hit of a time": (
        FAULT.replace("point: step.end", "after_s: 1"),
        r"at\.hit: counts passages of a point; after_s",
    ),
    "exception at a time": (
        FAULT.replace("point: step.end, hit: 4", "after_s: 1").replace("sigkill", "exception"),
        r"at\.after_s: an exception needs a point",
    ),
    "data at a time": (
        FAULT.replace("role: rank, rank: 1, point: step.end, hit: 4", "role: data, after_s: 1"),
        r"at\.role: data: its",
    ),
    "random backwards": (
        FAULT.replace("point: step.end, hit: 4", "random_s: [2, 1]"),
        r"at\.random_s: \[2(\.0)?, 1(\.0)?\]: the first",
    ),
    "random of one": (
        FAULT.replace("point: step.end, hit: 4", "random_s: [2]"),
        r"at\.random_s: .*at least 2 items",
    ),
    "standby's attempt": (
        FAULT.replace(
            "attempt: 0, role: rank, rank: 1, point: step.end, hit: 4",
            "attempt: 1, role: standby, point: standby.warm",
        ),
        r"at\.attempt: 1: a standby serves no attempt yet",
    ),
    "twice": (
        FAULT + "  - at: {attempt: 0, role: rank, rank: 1, point: step.end, hit: 4}",
        r"e\.yaml:12: faults\[1\]\.at: the same as that of faults\[0\]",
    ),
    "own gate": (
        FAULT + "    gate: {rank: 1, point: step.end, hit: 4}",
        r"e\.yaml:12: faults\[0\]\.gate: is the passage that",
    ),
    "gate's rank": (
        FAULT + "    gate: {rank: 7, point: step.end}",
        r"faults\[0\]\.gate\.rank: 7: ranks are 0 to 1",
    ),
    "gate's point": (
        FAULT + "    gate: {rank: 0, point: shard.haf}",
        r"gate\.point: .* 'shard\.haf'; the nearest is shard\.half",
    ),
    "no faults list": (BASE + "faults: 3", r"e\.yaml:9: faults: .*list, not 3"),
}


@pytest.mark.parametrize("name", WRONG)
def test_an_error_names_file_line_and_field(name: str) -> None:
    text, pattern = WRONG[name]
    with pytest.raises(ExperimentError) as caught:
        read(text)
    assert re.search(pattern, str(caught.value)), str(caught.value)


def test_every_finding_is_reported_in_one_go() -> None:
    with pytest.raises(ExperimentError) as caught:
        read(FAULT.replace("global_batch: 16", "global_batch: 18").replace("rank: 1", "rank: 5"))
    assert [problem.line for problem in caught.value.problems] == [5, 11]
    assert str(caught.value).count("\n") == 1


def test_an_unknown_point_has_its_own_type() -> None:
    with pytest.raises(UnknownPoint):
        read(FAULT.replace("step.end", "step.ends"))


def test_a_file_that_cannot_be_read(tmp_path: Path) -> None:
    with pytest.raises(ExperimentError, match=r"missing\.yaml: cannot be read: No such file"):
        load_experiment(tmp_path / "missing.yaml")
    (tmp_path / "binary.yaml").write_bytes(b"\xff\xfe\x00")
    with pytest.raises(ExperimentError, match="cannot be read: is not UTF-8 text"):
        load_experiment(tmp_path / "binary.yaml")


def test_numbers_in_scientific_notation_are_numbers() -> None:
    assert read(BASE + "  config: {lr: 1e-3, name: a1e3}").run.config == {"lr": 1e-3, "name": "a1e3"}


def test_random_times_depend_on_seed_and_fault_only() -> None:
    text = (
        BASE
        + """\
faults:
  - at: {rank: 0, random_s: [1, 2]}
  - at: {rank: 0, random_s: [1, 2]}
"""
    )
    first, second = (fault.after_s for fault in read(text).faults)
    assert first is not None
    assert second is not None
    assert 1 <= first < 2
    assert first != second
    assert read(text).faults == read(text + "\n# no change").faults
    assert read(text, seed=4).faults[0].after_s != first


def test_the_seed_of_the_command_line_counts_as_the_files_own() -> None:
    assert read(BASE, seed=9).config_digest == read(BASE.replace("seed: 3", "seed: 9")).config_digest
    with pytest.raises(ExperimentError, match=r"e\.yaml:3: run\.seed"):
        read(BASE, seed=-1)


@pytest.mark.parametrize(
    "extra", ["  standbys: 3", "  hang_deadline_s: 99", "  max_attempts: 3", "  keep: 5"]
)
def test_what_changes_no_number_changes_the_config_digest_only(extra: str) -> None:
    base, changed = read(BASE), read(BASE + extra)
    assert base.training_digest == changed.training_digest
    assert base.config_digest != changed.config_digest


@pytest.mark.parametrize(
    "extra",
    ["  threads_per_rank: 7", "  config: {lr: 0.5}", "  precision: bf16", "  non_finite: skip", "  keep_best: true"]
)
def test_what_changes_numbers_changes_both_digests(extra: str) -> None:
    base, changed = read(BASE), read(BASE + extra)
    assert base.training_digest != changed.training_digest
    assert base.config_digest != changed.config_digest


def test_without_faults_the_training_is_the_same() -> None:
    clean = read(FAULT).without_faults()
    assert clean.faults == ()
    assert clean.config_digest == read(BASE).config_digest


def test_built_in_workloads_are_those_of_the_trainers() -> None:
    workload = importlib.import_module("trainers.workload")
    assert set(workload.BUILT_IN) == set(BUILT_IN_WORKLOADS)


def complaint(text: str) -> str | None:
    try:
        read(text)
    except ExperimentError as error:
        return str(error)
    return None


@given(st.text(max_size=80))
def test_any_text_is_an_experiment_or_an_experiment_error(text: str) -> None:
    problems = complaint(text)
    assert problems is None or problems.startswith("e.yaml")


@given(
    st.recursive(
        st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=5),
        lambda inner: (
            st.lists(inner, max_size=3)
            | st.dictionaries(
                st.sampled_from(["run", "faults", "at", "gate", "workload", "rank", "point", "config"]),
                inner,
                max_size=4,
            )
        ),
        max_leaves=12,
    )
)
def test_any_yaml_value_is_an_experiment_or_an_experiment_error(value: object) -> None:
    problems = complaint(yaml.safe_dump(value, allow_unicode=True))
    assert problems is None or problems.startswith("e.yaml")


def test_the_defaults_are_those_of_the_default_experiment() -> None:
    given = load_experiment(None).settings.run.model_dump(exclude_unset=True, exclude={"workload", "config"})
    assert given == {name: RunSettings.model_fields[name].default for name in given}
