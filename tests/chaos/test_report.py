"""The report and the live progress, as text."""

from __future__ import annotations

import io
import re
from pathlib import Path

import pytest
from chaos_kit import verdict_json
from rich.console import Console

from chaos.experiment import parse_experiment
from chaos.faults import Fault, FaultKind
from chaos.points import Role
from chaos.printable import printable
from chaos.progress import LiveProgress
from chaos.receipts import receipt_for, write_receipt
from chaos.report import Choice, print_results, read_choices, render
from storage.log import Candidate, CommitLog
from storage.objects import LocalObjects
from storage.process import ProcessId, current_process
from trainers.events import (
    AttemptStarted,
    Chosen,
    DeathDetected,
    DeathObserved,
    Finished,
    Log,
    NonFiniteFound,
    Published,
    RankPlaced,
    StepDone,
)


def console(*, terminal: bool = False, width: int = 200) -> Console:
    return Console(
        file=io.StringIO(),
        width=width,
        highlight=False,
        markup=False,
        force_terminal=terminal,
        color_system=None,
    )


def text(console: Console) -> str:
    assert isinstance(console.file, io.StringIO)
    return console.file.getvalue()


def cells(line: str) -> list[str]:
    """The cells of a line of a table: they stand two blanks apart."""
    return re.split(r"  +", line.strip())


def shown(verdict: dict[str, object], *choices: Choice) -> str:
    out = console()
    out.print(render(verdict, choices, Path("/runs/1")))
    return text(out)


def test_the_first_line_reproduces_the_run() -> None:
    first = shown(verdict_json()).splitlines()[0].rstrip()
    assert first == "seed 7 · config sha256:ab · code 0.1.0+cd · reproduce: killpoint run --seed 7"


def test_text_from_disk_is_escaped_everywhere() -> None:
    nasty = "\x1b]0;pwn\x07 \ud800 \u202e"
    verdict = verdict_json()
    verdict["reproduce"] = nasty
    verdict["unseen"] = [nasty]
    verdict["invariants"][0]["witness"] = nasty
    out = console()
    out.print(render(verdict, [Choice(1, nasty, ((nasty, nasty),))], Path("/runs/\udcff")))
    printed = text(out)
    assert not {letter for letter in printed if not letter.isprintable() and letter != "\n"}
    assert printed.count("\\x1b]0;pwn\\x07 \\ud800 \\u202e") == 6
    assert "/runs/\\udcff" in printed
    printed.encode("utf-8")


@pytest.mark.parametrize(
    ("value", "safe"),
    [
        ("plain é – 字\n", "plain é – 字\n"),
        ("\x1b[2J\r\t\x00", "\\x1b[2J\\r\\t\\x00"),
        ({"\x07": ["\ud800", 3, None, ("\x9b",)]}, {"\\x07": ["\\ud800", 3, None, ["\\x9b"]]}),
    ],
)
def test_printable(value: object, safe: object) -> None:
    assert printable(value) == safe


def test_faults_with_receipt_and_observed_death() -> None:
    lines = shown(verdict_json()).splitlines()
    (fired,) = [line for line in lines if "step.end hit 4" in line]
    assert cells(fired) == [
        "0", "rank 1", "step.end hit 4", "sigkill", "pid 4242", "pid 4242, SIGKILL",
    ]  # fmt: skip
    (missed,) = [line for line in lines if "none: did not fire" in line]
    assert "nothing" in missed
    assert "at a time" in missed


def test_recoveries_with_choice_rejections_and_times() -> None:
    choice = Choice(1, "s00000007-a0000", (("s00000014-a0000", "shard r0001: digest differs"),))
    (line,) = [line for line in shown(verdict_json(), choice).splitlines() if "s00000007-a0000" in line]
    found = cells(line)
    assert found[:3] == ["1", "s00000007-a0000", "s00000014-a0000: shard r0001: digest differs"]
    assert found[3:] == ["3", "96", "0.020", "0.100", "0.005", "0.500", "0.310"]


def test_a_recovery_without_evidence() -> None:
    verdict = verdict_json()
    verdict["recoveries"][0] |= {"load_s": None, "redo_steps": None, "restored_step": None}
    out = shown(verdict)
    (line,) = [line for line in out.splitlines() if "0.020" in line]
    assert cells(line) == ["1", "–", "none", "–", "96", "0.020", "0.100", "–", "0.500", "0.310"]
    assert "–: the attempt ended before that, or nothing on disk says it" in out
    assert "ended before that" not in shown(verdict_json())
    assert "None" not in out


def test_on_a_narrow_terminal_no_word_and_no_number_is_broken() -> None:
    choice = Choice(1, "s00000007-a0000", (("s00000014-a0000", "shards/s00000014-a0000-r0001.safetensors: digest"),))
    digest, command = f"sha256:{'ab' * 32}", f"killpoint run /a/long/{'path/' * 20}experiment.yaml --seed 7"
    verdict = verdict_json() | {"config_digest": digest, "reproduce": command}
    wide, narrow = console(width=400), console(width=80)
    for out in (wide, narrow):
        out.print(render(verdict, (choice,), Path("/runs/1")), crop=False)
    words = {word.rstrip(":;") for word in text(wide).split()} - {"·"}
    assert words <= {word.rstrip(":;") for word in text(narrow).split()}
    assert "  restored: s00000007-a0000" in map(str.rstrip, text(narrow).splitlines())
    assert f"reproduce: {command}" in text(narrow).splitlines()
    long = [line for line in text(narrow).splitlines() if len(line) > 80]
    assert long == [f"reproduce: {command}"]


def test_what_was_not_seen_hangs_below_its_own_text() -> None:
    out = console(width=40)
    out.print(render(verdict_json() | {"invariants": [], "faults": [], "recoveries": []}, (), Path("/runs/1")))
    lines = text(out).splitlines()
    at = next(n for n, line in enumerate(lines) if "learning rate" in line)
    assert lines[at].startswith("  - the learning rate")
    assert lines[at + 1].startswith("    ")
    assert lines[at + 1][4] != " "


def test_in_a_pipe_nothing_is_wrapped_drawn_or_padded(capsys: pytest.CaptureFixture[str]) -> None:
    verdict = verdict_json()
    verdict["invariants"][1]["witness"] = witness = "word " * 100 + "end"
    print_results(render(verdict, (), Path("/runs/1")))
    lines = capsys.readouterr().out.splitlines()
    assert any(line.endswith(witness) for line in lines)
    assert lines == [line.rstrip() for line in lines]
    assert not set("│┃━─┏└") & set("".join(lines))


def test_invariants_unseen_run_and_verdict() -> None:
    out = shown(verdict_json("invalid") | {"failure": "gave up"})
    assert "same trajectory" in out
    assert "no twin [was] run" in out  # brackets are text, not markup
    assert "  - the learning rate was constant" in out
    assert "gave up" not in out  # the command has said so on standard error, and invariant 10 says why it is unknown
    assert "run: /runs/1" in out
    assert out.rstrip().endswith("verdict: invalid")


def test_a_verdict_of_nothing_has_no_empty_tables() -> None:
    out = shown(verdict_json() | {"faults": [], "recoveries": [], "unseen": []})
    assert "Faults" not in out
    assert "Recoveries" not in out
    assert "could not have seen" not in out


@pytest.mark.parametrize(
    ("observed", "words"),
    [
        ({"pid": 3, "how": "stopped", "signal": 9}, "pid 3, stopped, SIGKILL"),
        ({"pid": 3, "signal": None, "code": 1}, "pid 3, exit code 1"),
        ({"signal": 99}, "signal 99"),
        ({}, "yes"),
    ],
)
def test_how_an_end_was_observed(observed: dict[str, object], words: str) -> None:
    verdict = verdict_json()
    verdict["faults"][0]["observed"] = observed
    assert any(line.rstrip().endswith(f"  {words}") for line in shown(verdict).splitlines())


def test_a_fault_at_a_time_and_a_held_gate() -> None:
    verdict = verdict_json()
    verdict["faults"][0] |= {"point": None, "after_s": 1.25}
    verdict["faults"][0]["receipt"]["gate"] = {"point": "shard.half"}
    out = shown(verdict)
    assert "after 1.250 s of training" in out
    assert "pid 4242, gate held" in out


def test_choices_are_read_from_the_commit_log(tmp_path: Path) -> None:
    (tmp_path / "store").mkdir()
    log = CommitLog(LocalObjects(tmp_path / "store"), "run")
    for _ in range(2):
        log.fence("sha256:" + "0" * 64, current_process())
    digest = "sha256:" + "1" * 64
    log.choose(1, None, [Candidate("s00000007-a0000", digest, 7, "rejected", "shard is missing")])
    assert read_choices(tmp_path) == (Choice(1, None, (("s00000007-a0000", "shard is missing"),)),)
    (tmp_path / "store" / "log" / "00000001.json").write_text("cut")
    assert read_choices(tmp_path) == ()


FAULT = Fault("f0", FaultKind.SIGKILL, 0, Role.RANK, 1, "microbatch.backward", 71)


def test_progress_without_a_terminal_is_single_lines(run_folder: Path) -> None:
    out = console()
    struck = ProcessId("h", 4242, 99)
    write_receipt(run_folder, receipt_for(FAULT, "run", 1, struck, None))
    with LiveProgress(20, run_folder, (FAULT,), out) as progress:
        for event in (
            AttemptStarted(0), RankPlaced(0, "rank", 1, 4242, 99, "h"), StepDone(0, 0, 1, 3.5),
            StepDone(0, 0, 2, 3.25), StepDone(0, 1, 2, 3.25), Published(0, "s00000007-a0000", 7),
            Chosen(0, None, 0, ()), DeathDetected(0, "rank", 1, 4242, 99, "actor_died"),
            DeathObserved(4242, 99, 9), DeathObserved(1, 1, None),
            DeathDetected(0, "committer", None, 5, 5, "missed_deadline"), AttemptStarted(1),
            Chosen(1, "s00000007-a0000", 7, (("s00000014-a0000", "[torn] shard"),)), Log("a word"),
            NonFiniteFound(1, 9, "loss", "skip", float("nan"), 1.0, 1.0),
            Finished(20),
        ):  # fmt: skip
            progress.notify(event)
    assert text(out).splitlines() == [
        "attempt 0  step 2/20  loss 3.2500",
        "attempt 0: rank 1 (pid 4242) actor died: struck by f0, sigkill at attempt 0, rank 1, "
        "microbatch.backward hit 71",
        "  rank 1 (pid 4242) is gone: SIGKILL",
        "attempt 0: committer (pid 5) missed deadline: no fault of this experiment",
        "  rejected s00000014-a0000: [torn] shard",
        "  attempt 1 goes on from s00000007-a0000 (step 7)",
        "a word",
        "attempt 1: step 9: the loss is nan; update skipped",
        "step 20 reached",
    ]


def test_progress_on_a_terminal_has_a_bar(run_folder: Path) -> None:
    out = console(terminal=True)
    with LiveProgress(20, run_folder, (), out) as progress:
        progress.notify(AttemptStarted(2))
        progress.notify(StepDone(2, 0, 5, 1.0))
        progress._bar.refresh()
        progress.notify(Log("said above the bar"))
    assert "attempt 2" in text(out)
    assert "step 5/20  loss 1.0000" in text(out)
    assert "said above the bar" in text(out)


def test_progress_survives_a_broken_receipt(run_folder: Path) -> None:
    (run_folder / "history" / "receipts" / "f0.json").write_text("cut")
    out = console()
    LiveProgress(20, run_folder, (FAULT,), out).notify(DeathDetected(0, "rank", 1, 1, 1, "stalled"))
    assert "no fault of this experiment" in text(out)


def test_faults_read_well() -> None:
    experiment = parse_experiment(
        "run: {workload: tiny, seed: 1}\n"
        "faults: [{at: {role: committer, after_s: 1.5}}, {at: {rank: 0, after_s: 2}}]"
    )
    assert [str(fault) for fault in experiment.faults] == [
        "sigkill of committer, attempt 0, 1.500 s into training",
        "sigkill of rank 0, attempt 0, 2.000 s into training",
    ]
