"""Reference B: journeys in fresh processes, exactly 0 deviation of a full resume, and each omission caught."""

from __future__ import annotations

import json
import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from typer.testing import CliRunner, Result

from chaos.cli import app
from chaos.diff.trace import Trace
from chaos.errors import CheckpointRefused, LabError
from chaos.labs.choices import Omission
from chaos.labs.files import digest_file, read_checkpoint, read_json
from chaos.labs.identity import dataset_digest
from chaos.labs.resume_data import rows
from chaos.labs.resume_journey import Request, travel
from chaos.labs.resume_proof import Journey, _travel, judge
from chaos.labs.resume_task import Training

Body = dict[str, Any]
README = (Path(__file__).resolve().parents[2] / "chaos" / "labs" / "README.md").read_text()
PART = {
    "optimizer": "optimizer", "scheduler": "scheduler", "cursor": "progress", "python-rng": "rng.python",
    "numpy-rng": "rng.numpy", "torch-rng": "rng.torch",
}  # fmt: skip
FIRST = {
    "optimizer": (6, "rate"), "scheduler": (7, "rate"), "cursor": (6, "sample ids"), "python-rng": (6, "loss"),
    "numpy-rng": (6, "loss"), "torch-rng": (6, "loss"),
}  # fmt: skip


def resume(*arguments: object) -> Result:
    return CliRunner().invoke(app, ["lab", "resume", *map(str, arguments)])


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A proof, journeys in four fresh processes, and beside them in this process one for each omission. Shared."""
    folder = tmp_path_factory.mktemp("resume") / "proof"
    ran = resume("--output", folder, "--json")
    assert ran.exit_code == 0, ran.stderr
    assert json.loads(ran.stdout) == read_json(folder / "report.json")
    mode = torch.get_deterministic_debug_mode()
    try:
        for name in PART:
            place = str(folder / f"without-{name}")
            travel(Request(f"without {name}", place, 5, str(folder / "cut" / "checkpoint.json"), (name,)))
    finally:
        torch.set_deterministic_debug_mode(mode)
    return folder


@pytest.fixture(scope="module")
def report(folder: Path) -> Body:
    return read_json(folder / "report.json")


def check_described(command: str, negative: Body, parts: str) -> None:
    """The README has the comparison's row. The deviations' last digits are the machine's."""
    first = negative["first_difference"]
    row = f"| `lab resume{command} | {parts} | {first['what']}, step {first['step']} |"
    (line,) = (line for line in README.splitlines() if line.startswith(row))
    weight, mse = map(float, line.split("|")[4:6])
    assert negative["weight_deviation"] == pytest.approx(weight, rel=0.01)
    assert negative["mse_difference"] == pytest.approx(mse, rel=0.01)


def journey(folder: Path, name: str) -> Journey:
    place = folder / name
    return Journey(name, place, read_checkpoint(place / "checkpoint.json")[0], read_json(place / "summary.json"))


def test_the_protocol(report: Body) -> None:
    journeys = report["journeys"]
    assert len({one["pid"] for one in journeys.values()} | {os.getpid()}) == len(journeys) + 1 == 5
    continuous, cut, full = (journeys[name] for name in ("continuous", "cut", "full resume"))
    assert [one["observations"] for one in (continuous, cut, full)] == [40, 20, 20]
    assert [row["rate"] for row in continuous["steps"]] == [0.03] * 3 + [0.015] * 3 + [0.0075] * 3 + [0.00375]
    assert continuous["next_rate"] == 0.00375
    ids = [number for row in continuous["steps"] for number in row["ids"]]
    assert sorted(ids[:24]) == list(range(24))
    assert len(set(ids[24:])) == 16
    assert ids[:16] != ids[24:]


def test_the_state_at_the_cut(folder: Path) -> None:
    body = journey(folder, "cut").body
    assert (body["progress"]["cursor"], body["progress"]["step"]) == (20, 5)
    assert sum(len(tensor["values"]) for tensor in body["parameters"].values()) == 33
    assert {tensor["dtype"] for tensor in body["parameters"].values()} == {"float64"}
    assert body["buffers"]["input_mean"]["values"] != [0.0, 0.0]
    assert body["rng"]["numpy"]["bit_generator"] == "PCG64"
    assert (body["configuration"]["dropout"], body["configuration"]["threads"]) == (0.25, 1)
    assert body["dataset"]["digest"] == dataset_digest(rows())
    assert (len(rows()), len(rows()[0])) == (24, 3)


def test_a_full_resume_deviates_by_exactly_0(report: Body, folder: Path) -> None:
    positive = report["positive"]
    assert report["all_checks_passed"]
    assert positive["equal"]
    assert positive["deviation"] == 0.0
    assert positive["first_difference"] is None
    assert {
        "consumed ids", "rates", "losses", "parameters", "buffers", "optimizer", "scheduler", "progress",
        "loss history", "evaluation", *(f"next draws of the {name} generator" for name in ("python", "numpy", "torch")),
    } <= positive["fields"].keys()  # fmt: skip
    ends = [(folder / name / "checkpoint.json").read_bytes() for name in ("continuous", "full-resume")]
    assert ends[0] == ends[1]


@pytest.mark.parametrize("omission", [each.value for each in Omission])
def test_each_omission_is_caught(folder: Path, omission: str) -> None:
    whole, without = (journey(folder, name) for name in ("continuous", f"without-{omission}"))
    (negative,) = judge(whole, None, journey(folder, "full-resume"), [without])["negative"]
    assert negative["omitted"] == [omission]
    assert not negative["equal"]
    assert negative["weight_deviation"] > 1e-5
    assert (negative["first_difference"]["step"], negative["first_difference"]["what"]) == FIRST[omission]
    continuous, incomplete = (
        Trace.read(folder / name / "trace.json") for name in ("continuous", f"without-{omission}")
    )
    start, before, part = incomplete.starts[0], continuous.records[4], PART[omission]
    assert {name for name, digest in start.state.items() if digest != before.state[name]} == {part}
    assert start.cursor == (0 if omission == "cursor" else 20)
    check_described(f" --omit {omission}`", negative, part)
    if omission != "cursor":  # a fresh process's
        assert start.state[part] == continuous.starts[0].state[part]


def test_a_missed_omission_fails_the_check(folder: Path) -> None:
    continuous, cut, full = (journey(folder, name) for name in ("continuous", "cut", "full-resume"))
    caught = journey(folder, "without-torch-rng")
    assert judge(continuous, cut, full, [caught])["all_checks_passed"]
    missed = judge(continuous, cut, full, [caught, full])
    assert not missed["negative_divergence_detected"]
    assert not missed["all_checks_passed"]
    assert not judge(continuous, cut, full, [])["all_checks_passed"]


def test_a_full_resume_that_differs_fails_the_check(folder: Path) -> None:
    continuous, cut, full = (journey(folder, name) for name in ("continuous", "cut", "full-resume"))
    other = journey(folder, "without-torch-rng")
    assert not judge(continuous, cut, other, [other])["all_checks_passed"]
    assert not judge(continuous, journey(folder, "without-python-rng"), full, [other])["all_checks_passed"]


@pytest.mark.parametrize(
    ("place", "value"),
    [(("summary", "evaluation"), 0.5), (("summary", "next_rate"), 0.0075), (("summary", "next_draws"), {}),
     (("body", "buffers"), {}), (("body", "scheduler"), {}), (("summary", "loss_history"), [])],
)  # fmt: skip
def test_every_field_counts(folder: Path, place: tuple[str, str], value: object) -> None:
    continuous, full, other = (journey(folder, name) for name in ("continuous", "full-resume", "without-cursor"))
    changed = {"body": dict(full.body), "summary": dict(full.summary)}
    changed[place[0]][place[1]] = value
    judged = judge(continuous, None, Journey("full", folder, changed["body"], changed["summary"]), [other])
    assert not judged["positive"]["equal"]


def test_looking_at_the_next_draws_puts_the_generators_back() -> None:
    training = Training()
    training.run(2)
    before = training.state()["rng"]
    seen = training.next_draws()
    assert training.state()["rng"] == before
    drawn = {"python": [training.python.random() for _ in range(3)], "numpy": training.numpy.random(3).tolist(),
             "torch": torch.rand(3, dtype=torch.float64).tolist()}
    assert seen == drawn


def test_evaluating_changes_nothing() -> None:
    training = Training()
    training.run(2)
    before = training.state()
    assert training.evaluation() > 0
    assert training.state() == before
    assert training.model.training


def test_without_omit_one_journey_lacks_all_generators(report: Body) -> None:
    (negative,) = report["negative"]
    assert negative["omitted"] == ["python-rng", "numpy-rng", "torch-rng"]
    check_described("` (all three generators)", negative, "rng.numpy, rng.python, rng.torch")


def test_from_the_checkpoint_of_an_earlier_proof(folder: Path, tmp_path: Path) -> None:
    cut = folder / "cut" / "checkpoint.json"
    ran = resume("--checkpoint", cut, "--output", tmp_path / "out", "--omit", "cursor", "--omit", "torch-rng")
    assert ran.exit_code == 0, ran.stderr
    assert "every incomplete resume was caught" in " ".join(ran.stdout.split())
    report = read_json(tmp_path / "out" / "report.json")
    assert [each["omitted"] for each in report["negative"]] == [["cursor"], ["torch-rng"]]
    assert (report["cut_step"], report["journeys"]["continuous"]["to_step"]) == (5, 10)  # 5 additional updates
    for name in ("without-cursor", "without-torch-rng"):  # a fresh process and this one come to the same
        ends = [(place / name / "checkpoint.json").read_bytes() for place in (folder, tmp_path / "out")]
        assert ends[0] == ends[1]
    again = resume("--output", tmp_path / "out")
    assert again.exit_code == 2
    assert "exists already" in again.stderr
    assert read_json(tmp_path / "out" / "report.json") == report


def test_a_journey_that_fails_is_named(folder: Path, tmp_path: Path) -> None:
    requests = [Request(name, str(folder / name), 1) for name in ("cut", "second")]
    with pytest.raises(LabError, match=r"journey cut \(status 2\): .*exists already") as told:
        _travel(requests, lambda name: None)
    assert "second" not in str(told.value)


def test_a_damaged_checkpoint_is_refused(folder: Path, tmp_path: Path) -> None:
    cut = folder / "cut" / "checkpoint.json"
    copy = tmp_path / "copy.json"
    copy.write_bytes(cut.read_bytes().replace(b'"step":5', b'"step":4'))
    digest_file(copy).write_bytes(digest_file(cut).read_bytes())
    ran = resume("--checkpoint", copy, "--output", tmp_path / "out")
    assert ran.exit_code == 2
    assert "its digest is" in ran.stderr
    assert not (tmp_path / "out").exists()


def _older_optimizer(body: Body) -> None:
    body["optimizer"]["history"]["output.bias"]["step"]["values"] = [4.0]


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (lambda body: body["dataset"].update(rows=25), "dataset.rows was 25, is 24"),
        (lambda body: body.update(code="sha256:0"), "code was"),
        (lambda body: body["configuration"].update(gamma=0.1), "configuration.gamma was 0.1, is 0.5"),
        (lambda body: body["versions"].update(numpy="1.0"), "versions.numpy was '1.0'"),
        (lambda body: body.update(format="x"), "no checkpoint of this lab"),
        (lambda body: body["progress"].update(step=6), "history of 5 losses"),
        (lambda body: body["progress"].update(samples_seen=24), "samples_seen is not that of step 5"),
        (lambda body: body["progress"].update(cursor=16), "cursor is not that of step 5"),
        (lambda body: body["progress"]["order"].reverse(), "order is not that of step 5"),
        (lambda body: body["scheduler"].update(last_epoch=4), "count of the scheduler"),
        (lambda body: body["optimizer"]["groups"][0].update(lr=0.03), "rate is not that of step 5"),
        (_older_optimizer, "count of the optimizer"),
        (lambda body: body["optimizer"]["history"].pop("output.bias"), "parameters with a history"),
        (lambda body: body["rng"]["python"][1].__setitem__(0, 1), "Python's generator"),
        (lambda body: body["rng"]["numpy"]["state"].update(inc=1), "NumPy's generator"),
        (lambda body: body["rng"].update(torch="00"), "does not fit"),
        (lambda body: body["parameters"].pop("output.bias"), "does not fit"),
        (lambda body: body["parameters"].update(more=body["parameters"]["output.bias"]), "once loaded"),
        (lambda body: body["buffers"]["input_mean"].update(dtype="float32"), "once loaded"),
    ],
)
def test_a_state_of_something_else_or_of_two_moments_is_refused(
    folder: Path, change: Callable[[Body], object], message: str
) -> None:
    path = folder / "cut" / "checkpoint.json"
    body = read_checkpoint(path)[0]
    Training.restored(body, path, "sha256:", {Omission.OPTIMIZER})
    change(body)
    with pytest.raises(CheckpointRefused, match=message.replace(".", r"\.")):
        Training.restored(body, path, "sha256:", {Omission.OPTIMIZER})
