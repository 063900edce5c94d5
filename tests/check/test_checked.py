"""What a check says in the end: its verdict, its report, its JUnit file. With results that were written by hand."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from xml.etree import ElementTree

import pytest
from check_kit import OUTLINE, done
from rich.console import Console
from typer.testing import CliRunner

from chaos.check.command import Checked
from chaos.check.coverage import coverage
from chaos.check.junit import write_error, write_junit
from chaos.check.order import Planned, Stage, plan
from chaos.check.report import render
from chaos.cli import app
from chaos.sweep.conduct import second_opinion
from chaos.sweep.results import Ending, Result
from chaos.sweep.summary import summarize

PLAN = plan(OUTLINE, (), (), 0)
ONCE = [each for each in PLAN if each.stage is Stage.ONCE]
WITNESS = "samples 40–43 were applied twice: <at> step 10 & 11\x07"


def checked(results: Mapping[str, Result], planned: list[Planned] = PLAN, budget_s: float | None = 60.0) -> Checked:
    left = {each.trial.name for each in planned} - results.keys()
    counted = [each.trial for each in planned if each.stage is Stage.ONCE or each.trial.name in results]
    covered = coverage(OUTLINE, planned, results, left, budget_s, 58.5, 90)
    return Checked(Path("/x"), tuple(planned), results, summarize(counted, results), covered, ("a note",))


def all_good() -> dict[str, Result]:
    return {each.trial.name: done(each) for each in ONCE}


def with_last(**change: object) -> dict[str, Result]:
    results = all_good()
    name = ONCE[-1].trial.name
    results[name] = replace(results[name], **change)  # type: ignore[arg-type]
    return results


INVALID = with_last(ending=Ending.INVALID, why=WITNESS, reproduce="killpoint run /x/trials/a.yaml")


def test_every_point_once_and_all_as_it_must_be_is_valid_though_stages_were_left_out() -> None:
    assert checked(all_good()).verdict == "valid"


def test_a_budget_that_covers_a_part_is_unknown_and_says_which_would_do() -> None:
    results = all_good()
    del results[ONCE[-1].trial.name]
    found = checked(results)
    assert found.verdict == "unknown"
    assert "about --budget 90s would strike every point once" in shown(found)


@pytest.mark.parametrize(
    ("results", "verdict"),
    [
        (INVALID, "invalid"),
        (with_last(predicted=False), "invalid"),
        (with_last(ending=Ending.UNKNOWN), "unknown"),
        (with_last(ending=Ending.UNFINISHED), "unknown"),
        (with_last(struck=0), "unknown"),
        ({ONCE[0].trial.name: replace(done(ONCE[0]), ending=Ending.INVALID)}, "invalid"),  # and most not begun
    ],
)
def test_invalid_beats_unknown_beats_valid(results: dict[str, Result], verdict: str) -> None:
    assert checked(results).verdict == verdict


def test_what_was_invalid_once_is_not_made_good_by_not_coming_again() -> None:
    good = done(ONCE[0])
    invalid = replace(good, ending=Ending.INVALID, why="w")
    assert second_opinion(invalid, invalid) == replace(invalid, afresh="invalid: w")
    assert second_opinion(replace(good, struck=0), good).good  # it did not strike, and then it did
    doubtful = second_opinion(invalid, good)
    assert (doubtful.ending, doubtful.good) == (Ending.UNKNOWN, False)
    assert doubtful.why.endswith("invalid: w")


def test_a_later_stage_counts_too() -> None:
    later = next(each for each in PLAN if each.stage is Stage.PAIRS)
    results = all_good() | {later.trial.name: replace(done(later), ending=Ending.INVALID)}
    assert checked(results).verdict == "invalid"


def shown(found: Checked) -> str:
    console = Console(width=400)
    with console.capture() as captured:
        console.print(render(found))
    return captured.get()


def test_the_report_has_the_witness_and_the_line_that_shows_it_again() -> None:
    text = shown(checked(INVALID))
    assert "samples 40–43 were applied twice" in text
    assert "\x07" not in text
    assert "  reproduce: killpoint run /x/trials/a.yaml" in text
    assert text.rstrip().endswith("verdict: invalid")


def junit(tmp_path: Path, found: Checked) -> ElementTree.Element:
    file = tmp_path / "below" / "junit.xml"
    write_junit(file, "mine", found)
    (suite,) = ElementTree.parse(file).getroot()
    return suite


def test_junit_has_a_case_for_every_trial_and_one_for_the_coverage(tmp_path: Path) -> None:
    suite = junit(tmp_path, checked(all_good()))
    cases = suite.findall("testcase")
    assert [case.get("name") for case in cases] == [*(each.trial.name for each in ONCE), "every point once"]
    assert {case.get("classname") for case in cases} == {"killpoint.mine"}
    assert [suite.get(name) for name in ("tests", "failures", "errors", "skipped")] == [str(len(cases)), "0", "0", "0"]
    assert not [case for case in cases if len(case)]


def test_junit_has_failures_with_witness_and_reproducer(tmp_path: Path) -> None:
    suite = junit(tmp_path, checked(INVALID))
    (failure,) = suite.iter("failure")
    assert suite.get("failures") == "1"
    assert failure.get("message") == "samples 40–43 were applied twice: <at> step 10 & 11\\x07"
    assert "reproduce: killpoint run /x/trials/a.yaml" in (failure.text or "")


def test_half_a_check_does_not_look_whole_in_junit(tmp_path: Path) -> None:
    results = all_good()
    del results[ONCE[-1].trial.name]
    suite = junit(tmp_path, checked(results))
    assert [suite.get(name) for name in ("failures", "errors", "skipped")] == ["0", "1", "1"]
    (error,) = suite.iter("error")
    assert "covers only part" in str(error.get("message"))


def test_json_says_all_of_it() -> None:
    value = json.loads(json.dumps(checked(INVALID).to_json()))
    assert value["verdict"] == "invalid"
    assert len(value["trials"]) == len(ONCE)
    (failing,) = value["failing"]
    assert (failing["why"], failing["reproduce"]) == (WITNESS, "killpoint run /x/trials/a.yaml")
    assert value["coverage"]["points"] == {"struck": len(ONCE), "passed": len(ONCE), "not_chosen": 0}
    assert value["coverage"]["left_out"][0]["stage"] == "pairs in recovery"


@pytest.mark.parametrize(
    ("arguments", "says"),
    [
        (["gone.yaml"], "cannot be read"),
        (["e.yaml", "--budget", "soon"], "such as 60s"),
        (["e.yaml", "--output", "."], "exists already"),
    ],
)
def test_a_check_that_cannot_be_made_is_an_error_in_junit_and_status_2(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, arguments: list[str], says: str
) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "e.yaml").write_text("run: {workload: tiny, global_batch: 16, steps: 8}\n")
    done = CliRunner().invoke(app, ["check", *arguments, "--junit", "j.xml"])
    assert done.exit_code == 2
    assert says in done.stderr
    (suite,) = ElementTree.parse(tmp_path / "j.xml").getroot()
    (error,) = suite.iter("error")
    assert says in str(error.get("message"))
    assert suite.get("errors") == "1"


def test_an_error_of_no_words_is_still_a_file(tmp_path: Path) -> None:
    write_error(tmp_path / "j.xml", "mine", "")
    assert ElementTree.parse(tmp_path / "j.xml").getroot().find(".//error") is not None
