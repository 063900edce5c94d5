"""Invariant 7: what may be retired, and what must stay."""

from __future__ import annotations

from pathlib import Path

import pytest
from judging import Judge
from simulated_run import F0, Settings, Simulation, fault

DAMAGE = fault(5, 0, "store", None, None, kind="damage", hit=None)  # type: ignore[arg-type]


def trained(tmp_path: Path, upto: int = 8) -> Simulation:
    sim = Simulation(tmp_path / "run", Settings(keep=99, faults=[F0, DAMAGE]))
    sim.start()
    sim.train(upto)
    return sim


def done(sim: Simulation) -> Path:
    sim.train(12)
    sim.finish()
    return sim.folder


def test_the_old_ones_may_go(tmp_path: Path, judged: Judge) -> None:
    sim = trained(tmp_path)
    sim.retire(["s00000002-a0000", "s00000004-a0000"])
    judged(done(sim), 7, "valid")


@pytest.mark.parametrize(
    ("name", "words"),
    [
        (
            "s00000008-a0000",
            "entry 6 retired s00000008-a0000, at that time the newest checkpoint of the lineage",
        ),
        (
            "s00000006-a0000",
            "entry 6 retired s00000006-a0000, at that time a checkpoint that is needed as the way back",
        ),
        ("s00000099-a0000", "entry 6 retired s00000099-a0000, which was not published"),
    ],
)
def test_what_must_not_be_retired(tmp_path: Path, judged: Judge, name: str, words: str) -> None:
    sim = trained(tmp_path)
    sim.retire([name])
    judged(done(sim), 7, "invalid", words)


def test_the_lineage_is_that_of_the_entrys_place_in_the_log(tmp_path: Path, judged: Judge) -> None:
    """What was newest later does not excuse it."""
    sim = trained(tmp_path, 4)
    sim.retire(["s00000002-a0000"])
    judged(done(sim), 7, "invalid", "retired s00000002-a0000, at that time a checkpoint that is needed")


def test_after_a_restart_the_lineage_is_the_chosen_one(tmp_path: Path, judged: Judge) -> None:
    sim = trained(tmp_path, 5)
    sim.kill(F0)
    sim.recover()
    sim.retire(["s00000002-a0000"])
    judged(done(sim), 7, "invalid", "retired s00000002-a0000, at that time a checkpoint that is needed")


def test_checkpoints_of_a_left_branch_may_go(tmp_path: Path, judged: Judge) -> None:
    sim = trained(tmp_path, 5)
    sim.damage("shards/s00000004-a0000-r0000.safetensors", DAMAGE)
    sim.kill(F0)
    sim.recover(reject=1)
    sim.retire(["s00000004-a0000"])
    judged(done(sim), 7, "valid")


def test_a_damaged_one_is_no_way_back(tmp_path: Path, judged: Judge) -> None:
    """The newest two were damaged before: the two before them must stay too."""
    sim = trained(tmp_path, 8)
    sim.damage("shards/s00000008-a0000-r0000.safetensors", DAMAGE)
    sim.fence()
    sim.choose(0)
    sim.restore()
    sim.retire(["s00000004-a0000"])
    sim.finish(finished=False)
    judged(
        sim.folder,
        7,
        "invalid",
        "retired s00000004-a0000, at that time a checkpoint that is needed as the way back",
    )


def test_shards_that_go_without_an_entry(tmp_path: Path, judged: Judge) -> None:
    """The old checkpoint is removed before the new one is there."""
    sim = trained(tmp_path)
    (sim.folder / "store/shards/s00000006-a0000-r0001.safetensors").unlink()
    judged(
        done(sim),
        7,
        "invalid",
        "s00000006-a0000-r0001.safetensors of published s00000006-a0000 is gone, and no entry",
    )


@pytest.mark.parametrize("path", ["manifests/s00000002-a0000.json", "ledger/s00000002-a0000-r0000.arrow"])
def test_manifests_and_ledger_stay(tmp_path: Path, judged: Judge, path: str) -> None:
    sim = trained(tmp_path)
    sim.retire(["s00000002-a0000"])
    (sim.folder / "store" / path).unlink()
    judged(done(sim), 7, "invalid", f"retiring s00000002-a0000 also took store/{path}")


def test_nothing_retired_is_not_judged(tmp_path: Path, judged: Judge) -> None:
    judged(done(trained(tmp_path)), 7, "not_judged", "nothing was retired")


def test_damage_is_no_removal(tmp_path: Path, judged: Judge) -> None:
    sim = trained(tmp_path)
    sim.damage("shards/s00000006-a0000-r0001.safetensors")
    judged(done(sim), 7, "not_judged")


def test_what_an_earlier_attempt_retired_is_removed_under_no_entry_of_its_own(tmp_path: Path, judged: Judge) -> None:
    sim = trained(tmp_path)
    sim.retire(["s00000002-a0000"])
    sim.say(sim.of("committer").history, "retired", 0, names=["s00000002-a0000"], seq=None)
    judged(done(sim), 7, "valid")
