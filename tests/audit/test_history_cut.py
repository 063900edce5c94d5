"""Invariant 10, the evidence: a history that was cut, changed or taken away makes the verdict unknown, never valid."""

from __future__ import annotations

import json
import random
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from audit_files import bodies, rechain
from judging import Judge
from simulated_run import F0, Settings, Simulation, one_kill, two_kills

from chaos.audit import audit_run

# Root reads everything, so it becomes nobody first: after the imports and from within the run folder, since neither
# the packages nor the folders above need be open to others.
AS_NOBODY = """
import json, os, sys
from pathlib import Path
from chaos.audit import audit_run
os.chdir(sys.argv[1])
if os.geteuid() == 0:
    os.setgroups([])
    os.setgid(65534)
    os.setuid(65534)
verdict = audit_run(Path("."))
print(json.dumps([verdict.verdict, verdict.invariant(10).witness]))
"""


def histories(run: Simulation) -> list[Path]:
    return sorted((run.folder / "history").glob("*.jsonl"))


@pytest.mark.no_cover
def test_any_history_cut_at_any_line_is_unknown(tmp_path: Path) -> None:
    run = one_kill(tmp_path / "run", steps=6)
    assert len({path.name.partition("-")[0] for path in histories(run)}) == 4
    for path in histories(run):
        lines = path.read_bytes().splitlines(keepends=True)
        for kept in range(len(lines)):
            path.write_bytes(b"".join(lines[:kept]))
            verdict = audit_run(run.folder)
            assert verdict.verdict == "unknown", (path.name, kept)
            assert path.name in verdict.invariant(10).witness or kept == 1, (path.name, kept)
        path.write_bytes(b"".join(lines))
    assert audit_run(run.folder).verdict == "valid"


def test_any_history_that_is_gone_is_unknown_and_named(run: Simulation) -> None:
    for path in histories(run):
        kept = path.read_bytes()
        path.unlink()
        verdict = audit_run(run.folder)
        assert verdict.verdict == "unknown", path.name
        if not path.name.startswith("supervisor"):
            assert f"{path.name} is missing" in verdict.invariant(10).witness
        path.write_bytes(kept)


def test_without_any_history_it_is_unknown(run: Simulation, judged: Judge) -> None:
    shutil.rmtree(run.folder / "history")
    judged(run.folder, 10, "unknown", "there is no history")


@pytest.mark.no_cover
def test_a_changed_byte_breaks_the_chain(run: Simulation) -> None:
    rng = random.Random(5)
    for path in histories(run):
        data = path.read_bytes()
        for _ in range(3):
            place = rng.randrange(len(data) - 1)
            changed = bytearray(data)
            changed[place] ^= 1
            path.write_bytes(changed)
            verdict = audit_run(run.folder)
            assert verdict.verdict != "valid", (path.name, place)
            assert f"history/{path.name}" in verdict.invariant(10).witness
        path.write_bytes(data)


def test_a_line_taken_out_breaks_the_chain(run: Simulation, judged: Judge) -> None:
    path = histories(run)[-1]
    lines = path.read_bytes().splitlines(keepends=True)
    path.write_bytes(b"".join(lines[:3] + lines[4:]))
    judged(run.folder, 10, "unknown", "line 4: does not continue the chain")


def test_a_history_of_another_process_under_this_name(run: Simulation, judged: Judge) -> None:
    """Its chain begins with its name, so it fits no other."""
    first, second = histories(run)[-2:]
    second.write_bytes(first.read_bytes())
    judged(run.folder, 10, "unknown", f"history/{second.name} line 1: does not continue the chain")


def test_a_history_written_anew_is_another_one(run: Simulation, judged: Judge) -> None:
    path = run.procs[0].history.path
    events = bodies(path)
    events[2]["clock"] += 1
    rechain(path, events)
    judged(run.folder, 10, "unknown", f"history/{path.name} is another one than")


def test_a_torn_last_line_of_a_killed_process_is_legitimate(run: Simulation) -> None:
    killed = next(p for p in run.procs if p.rank == 1)
    with killed.history.path.open("ab") as file:
        file.write(b'{"body":{"attem')
    assert audit_run(run.folder).verdict == "valid"


def test_a_torn_last_line_of_an_orderly_process_is_not(run: Simulation, judged: Judge) -> None:
    with run.supervisor.path.open("ab") as file:
        file.write(b'{"body"')
    judged(run.folder, 10, "unknown", f"{run.supervisor.name} has no end")


def test_a_process_that_took_no_part_may_have_no_end(tmp_path: Path) -> None:
    """A standby that was still starting when the run was over."""
    sim = Simulation(tmp_path / "run", Settings(faults=[F0]))
    sim.start()
    sim.train(5)
    launcher, worker = sim._recorder("launcher"), sim._recorder("worker")
    sim.say(launcher, "spawned", None, **worker.who)
    sim._recorder("launcher")
    sim.kill(F0)
    sim.recover()
    sim.train(12)
    sim.finish()
    assert audit_run(sim.folder).verdict == "valid"


def test_a_process_that_acted_must_have_an_end(tmp_path: Path, judged: Judge) -> None:
    sim = Simulation(tmp_path / "run")
    sim.start()
    ghost = sim._recorder("worker")
    sim.say(ghost, "joined", 0, rank=1, world=2)
    sim.train(12)
    sim.finish()
    judged(
        sim.folder,
        10,
        "unknown",
        f"history/{ghost.name} has no end, and nothing says that process {ghost.pid} was",
    )


@pytest.mark.parametrize(
    ("name", "change", "words"),
    [
        ("step", lambda e: e.pop("ids"), "event step lacks ids"),
        ("step", lambda e: e.update(step=True), "step is True, not int"),
        ("step", lambda e: e.update(lr=[0.5]), "lr is 0.5, not str"),
        ("step", lambda e: e.pop("clock"), "event step lacks clock"),
        ("step", lambda e: e.update(skipped=1), "skipped is 1, not bool"),
        ("opened", lambda e: e.update(boot=None), "boot is None"),
        ("opened", lambda e: e.update(event="hello"), "does not begin with who wrote it"),
    ],
)
def test_an_event_that_is_none(run: Simulation, judged: Judge, name: str, change: Any, words: str) -> None:
    path = next(p for p in run.procs if p.rank == 0).history.path
    events = bodies(path)
    change(next(event for event in events if event["event"] == name))
    rechain(path, events)
    judged(run.folder, 10, "unknown", f"history/{path.name}", words)


@pytest.mark.parametrize("line", [b"", b"7", b"{}", b'{"body":3}', b"[" * 100_000, b"\xff", b'{"body":NaN}'])
def test_a_line_that_is_no_json_object(run: Simulation, judged: Judge, line: bytes) -> None:
    path = run.supervisor.path
    bodies_before = bodies(path)
    path.write_bytes(path.read_bytes() + line + b"\n")
    judged(run.folder, 10, "unknown", f"history/{path.name} line {len(bodies_before) + 1}: ")


def test_two_run_events_are_none(run: Simulation, judged: Judge) -> None:
    events = bodies(run.supervisor.path)
    rechain(run.supervisor.path, [*events[:2], events[1], *events[2:]])
    judged(run.folder, 10, "unknown", "no history says what the run was")


def test_a_damaged_worker_history_leaves_invariant_3_open(tmp_path: Path, judged: Judge) -> None:
    run = two_kills(tmp_path / "run")
    run.procs[0].history.path.unlink()
    judged(run.folder, 3, "unknown", "the history of rank 0 in attempt 0 lacks step 1")


def test_a_history_that_cannot_be_read(run: Simulation) -> None:
    for path in (run.folder, *run.folder.rglob("*")):
        path.chmod(0o755 if path.is_dir() else 0o644)
    run.supervisor.path.chmod(0)
    done = subprocess.run([sys.executable, "-c", AS_NOBODY, run.folder], capture_output=True, text=True, timeout=60)
    assert done.returncode == 0, done.stderr
    verdict, witness = json.loads(done.stdout)
    assert verdict == "unknown"
    assert f"history/{run.supervisor.name} cannot be read" in witness


def test_a_folder_in_place_of_a_history(run: Simulation, judged: Judge) -> None:
    path = run.procs[0].history.path
    path.unlink()
    path.mkdir()
    judged(run.folder, 10, "unknown", f"history/{path.name} cannot be read: Is a directory")


def test_a_history_of_another_run(run: Simulation, judged: Judge) -> None:
    events = bodies(run.supervisor.path)
    events[1]["run"] = "run-9"
    rechain(run.supervisor.path, events)
    judged(run.folder, 10, "unknown", "is of run run-1, not of run-9")
    judged(run.folder, 1, "invalid", "the commit log is of run run-1, the history of run-9")


@pytest.mark.parametrize("spawned", [True, False])
def test_a_launcher_that_was_cut_off(tmp_path: Path, judged: Judge, spawned: bool) -> None:
    """Its process says that it ended in order, but nobody saw how."""

    def edit(kind: str, thing: Any) -> None:
        lost = ("exited", "killing", "exit_confirmed", *(() if spawned else ("spawned",)))
        if kind == "event" and thing["event"] in lost and thing.get("pid") == 103:
            thing["drop"] = True
        if kind == "event" and thing["event"] == "closed" and thing["role"] == "launcher" and sim.cut:
            thing["drop"], sim.cut = True, False

    sim = Simulation(tmp_path / "run", edit=edit)
    sim.cut = False  # type: ignore[attr-defined]
    sim.start()
    sim.train(12)
    sim.cut = True  # type: ignore[attr-defined]
    sim.finish()
    cut = "history/launcher-h-102-1020.jsonl has no end: the launcher of process 103 was cut off"
    gone = "the history of the launcher of process 103 (rank) is missing"
    judged(sim.folder, 10, "unknown", cut if spawned else gone)


def test_the_line_that_was_cut_off_is_told(run: Simulation, judged: Judge) -> None:
    path = run.procs[0].history.path
    lines = path.read_bytes().splitlines(keepends=True)
    path.write_bytes(b"".join(lines[:-1]))
    judged(run.folder, 10, "unknown", f"history/{path.name} was cut: the end of {run.supervisor.name} has seen line "
           f"{len(lines)}, it ends at line {len(lines) - 1}")  # fmt: skip


def test_the_line_that_a_manifest_has_seen_otherwise_is_told(run: Simulation, judged: Judge) -> None:
    path = run.procs[0].history.path
    (head,) = (head for head in manifest_heads(run.folder, 4) if head["file"] == path.name)
    events = bodies(path)
    events[1]["clock"] += 1
    rechain(path, events)
    judged(run.folder, 10, "unknown", f"history/{path.name} is another one than the manifest of s00000004-a0000 has "
           f"seen: line {head['n'] + 1} differs")  # fmt: skip


def manifest_heads(folder: Path, step: int) -> list[dict[str, Any]]:
    paths = (folder / "store" / "manifests").glob(f"s{step:08d}-*.json")
    return [rank["history"] for path in paths for rank in json.loads(path.read_bytes())["body"]["ranks"]]
