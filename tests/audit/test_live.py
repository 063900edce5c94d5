"""Reading a run that still goes on, or folders that hold what no run writes: nothing is invented, nothing hangs."""

from __future__ import annotations

import os
import shutil
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from simulated_run import Settings, Simulation

from chaos.audit import audit_run, read_run, read_store
from chaos.audit.verdict import Verdict


def live(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, *, rounds: int = 20) -> tuple[Verdict, Simulation]:
    """The verdict on a run that trains on, publishes and retires between every two things that the audit reads."""
    sim = Simulation(tmp_path / "run", Settings(steps=200, save_every=1))
    sim.start()
    sim.train(4)

    def advancing(read: Callable[..., Any]) -> Callable[..., Any]:
        def reading(*args: Any) -> Any:
            result = read(*args)
            if sim.step < 4 + rounds:
                sim.train(sim.step + 1)
            return result

        return reading

    for module, names in (
        (read_run, ("read_history", "read_store", "read_receipts")),
        (read_store, ("_paths", "_log", "_manifest", "see_file")),
    ):
        for name in names:
            monkeypatch.setattr(module, name, advancing(getattr(module, name)))
    return audit_run(sim.folder), sim


@pytest.mark.parametrize("rounds", range(1, 40, 3))
def test_a_run_that_goes_on_while_it_is_read_is_not_invalid(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, rounds: int
) -> None:
    verdict, sim = live(tmp_path, monkeypatch, rounds=rounds)
    assert sim.step > 4
    assert verdict.verdict == "unknown"
    assert not [each for each in verdict.invariants if each.finding.verdict == "invalid"], verdict.invariants


def test_an_entry_that_came_while_the_log_was_listed(run: Simulation, monkeypatch: pytest.MonkeyPatch) -> None:
    listed = read_store._paths
    gone = ("log/00000003.json", "log/00000004.json")
    monkeypatch.setattr(read_store, "_paths", lambda *where: [p for p in listed(*where) if p not in gone])
    assert audit_run(run.folder).verdict == "valid"


@pytest.mark.parametrize("folder", ["log", "manifests", "ledger", "shards", "tmp", "quarantine"])
def test_a_folder_of_the_store_may_lie_elsewhere(run: Simulation, tmp_path: Path, folder: str) -> None:
    place = run.folder / "store" / folder
    shutil.move(place, tmp_path / "elsewhere")
    place.symlink_to(tmp_path / "elsewhere")
    before = audit_run(run.folder)
    assert (before.verdict, before.strays) == ("valid", ())


def test_links_that_are_none_of_the_formats_are_not_followed(run: Simulation) -> None:
    (run.folder / "store/loop").symlink_to(run.folder)
    (run.folder / "store/tmp/loop").symlink_to(run.folder)
    (run.folder / "store/more").mkdir()
    (run.folder / "store/more/x").touch()
    verdict = audit_run(run.folder)
    assert (verdict.verdict, verdict.strays) == ("valid", ("loop", "more/x"))


def within(seconds: float, judge: Callable[[], Verdict]) -> Verdict:
    """The verdict, which must come in this time: a reader that waits for a writer never ends."""
    found: list[Verdict] = []
    thread = threading.Thread(target=lambda: found.append(judge()), daemon=True)
    thread.start()
    thread.join(seconds)
    assert found, "the audit hangs"
    return found[0]


@pytest.mark.parametrize(
    ("path", "verdict"),
    [
        ("store/manifests/zz.json", "valid"),
        ("store/log/00000099.json", "invalid"),
        ("history/worker-z.jsonl", "unknown"),
        ("history/receipts/z.json", "unknown"),
    ],
)
def test_a_fifo_is_a_problem_and_no_wait(run: Simulation, path: str, verdict: str) -> None:
    os.mkfifo(run.folder / path)
    judged = within(30, lambda: audit_run(run.folder))
    assert judged.verdict == verdict
    if verdict != "valid":
        assert any(f"{path} is no regular file" in each.finding.witness for each in judged.invariants)


def test_a_fifo_in_place_of_a_published_file(run: Simulation) -> None:
    path = "store/ledger/s00000004-a0000-r0000.arrow"
    (run.folder / path).unlink()
    os.mkfifo(run.folder / path)
    verdict = within(30, lambda: audit_run(run.folder))
    assert f"{path} has 0 bytes" in verdict.invariant(1).witness


def test_a_fifo_among_the_datas_files(run: Simulation) -> None:
    os.mkfifo(run.dataset / "part-999.parquet")
    verdict = within(30, lambda: audit_run(run.folder))
    assert verdict.verdict == "unknown"
    assert "is no regular file" in verdict.invariant(3).witness
