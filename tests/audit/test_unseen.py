"""What a run could not have seen: each sentence where it belongs, and not where it does not."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from simulated_run import F0, Settings, Simulation, fault, two_kills

from chaos.audit import audit_run


def unseen(folder: Path) -> str:
    return "\n".join(audit_run(folder).unseen)


ALWAYS = "the trajectory was not compared"
OF_ANY_KILL = (
    "what a killed process recorded last",
    "the steps of all candidates had the same number of digits",
    "no restart began inside a step",
    "no writer of a fenced attempt came back",
    "no save fell due while another was in flight",
)


def trained(tmp_path: Path, settings: Settings, edit: Any = lambda kind, thing: None) -> str:
    sim = Simulation(tmp_path / "run", settings, edit)
    sim.start()
    sim.train(settings.steps)
    sim.finish()
    return unseen(sim.folder)


def test_a_rich_run_leaves_little_unseen(tmp_path: Path) -> None:
    """Four ranks, a rejection, a retirement, a kill in recovery, a gate, a scaler, an epoch after a restart."""
    damage = fault(5, 0, "store", None, None, kind="damage", hit=None)  # type: ignore[arg-type]
    second = fault(1, 1, "rank", 0, "recover.restored")

    def scaled(kind: str, thing: Any) -> None:
        if kind == "shard":
            thing["texts"]["scaler"] = '{"scale": 2}'

    settings = Settings(ranks=4, faults=[F0, second, damage], skips=(2,), skips_for="scaled_gradient")
    sim = Simulation(tmp_path / "run", settings, scaled)
    sim.start()
    sim.train(5)
    sim.train(6, publish=False)
    sim.damage("shards/s00000004-a0000-r0001.safetensors", damage)
    sim.kill(F0)
    sim.recover(reject=1)
    sim.kill(second)
    sim.recover(take=0)
    sim.train(12)
    sim.finish()
    left = unseen(sim.folder).splitlines()
    assert [next((words for words in (ALWAYS, *OF_ANY_KILL) if words in line), line) for line in left] == [
        ALWAYS, *OF_ANY_KILL,
    ]  # fmt: skip


@pytest.mark.parametrize(
    ("settings", "words"),
    [
        ({"constant_rate": True}, "the learning rate was constant: a lost scheduler is invisible here"),
        ({"scheduler": False}, "there was no scheduler"),
        ({}, "there was no gradient scaler"),
        ({"buffers": False}, "the model had no buffers"),
        ({"optimizer": "sgd"}, "the optimizer had no state"),
        ({"generators_advance": False}, "Python's and NumPy's and torch's generator never advanced"),
        ({"microbatches": 1}, "a step was one microbatch"),
        ({"rows": 96}, "the run stayed within one epoch"),
        ({}, "nothing was killed: no recovery was seen"),
        ({"ranks": 1}, "there were only one rank"),
        ({"ranks": 2}, "there were only two ranks"),
        ({"keep": 99}, "nothing was ever retired"),
    ],
)
def test_what_a_setting_hides(tmp_path: Path, settings: dict[str, Any], words: str) -> None:
    assert words in trained(tmp_path, Settings(**settings))


def test_a_scaler_that_never_skipped(tmp_path: Path) -> None:
    def scaled(kind: str, thing: Any) -> None:
        if kind == "shard":
            thing["texts"]["scaler"] = '{"scale": 2}'

    text = trained(tmp_path, Settings(skips=(3,)), scaled)  # skipped, but not for an overflow of the scaler
    assert "no scaled gradient overflowed: a lost gradient scaler may be invisible here" in text
    assert "there was no gradient scaler" not in text


@pytest.mark.parametrize(("step", "told"), [(3, False), (5, True)])
def test_a_scaler_that_overflowed_before_no_restart(tmp_path: Path, step: int, told: bool) -> None:
    """The only restart is from step 4."""
    sim = Simulation(
        tmp_path / "run", Settings(faults=[F0], skips=(step,), skips_for="scaled_gradient"),
        lambda kind, thing: thing["texts"].update(scaler='{"scale": 2}') if kind == "shard" else None,
    )  # fmt: skip
    sim.start()
    sim.train(5)
    sim.kill(F0)
    sim.recover()
    sim.train(12)
    sim.finish()
    assert ("overflowed before a restart: a scaler that came back as new" in unseen(sim.folder)) == told


@pytest.mark.parametrize(("rows", "told"), [(50, False), (33, True)])
def test_an_epoch_that_begins_after_a_restart(tmp_path: Path, rows: int, told: bool) -> None:
    """The restart is at position 48 of 64."""
    sim = Simulation(tmp_path / "run", Settings(rows=rows, steps=8, faults=[F0]))
    sim.start()
    sim.train(7)
    sim.kill(F0)
    sim.recover()
    sim.train(8)
    sim.finish()
    assert ("no epoch began after a restart" in unseen(sim.folder)) == told


def test_what_a_simple_kill_leaves_unseen(tmp_path: Path) -> None:
    plain = {**F0, "gate": None}
    sim = Simulation(tmp_path / "run", Settings(faults=[plain]))
    sim.start()
    sim.train(5)
    sim.kill(plain)
    sim.recover()
    sim.train(12)
    sim.finish()
    text = unseen(sim.folder)
    for words in (
        "no save was in flight at any kill", "nothing was killed during a recovery", "no gate was used",
        "no candidate was ever rejected",
    ):  # fmt: skip
        assert words in text


def test_a_save_in_flight_at_a_kill(tmp_path: Path) -> None:
    assert "no save was in flight" not in unseen(two_kills(tmp_path / "run").folder)


def test_nothing_published(tmp_path: Path) -> None:
    sim = Simulation(tmp_path / "run")
    sim.start()
    sim.train(1)
    sim.finish(finished=False)
    assert "the learning rate was constant" in unseen(sim.folder)


def test_nothing_trained(tmp_path: Path) -> None:
    sim = Simulation(tmp_path / "run", Settings(constant_rate=True))
    sim.start()
    sim.finish(finished=False)
    assert "no update was done" in unseen(sim.folder)
    assert "the learning rate was constant" not in unseen(sim.folder)


def test_a_recovery_from_what_nobody_planned(tmp_path: Path) -> None:
    sim = Simulation(tmp_path / "run")
    sim.start()
    sim.train(5)
    sim.recover()
    sim.train(12)
    sim.finish()
    assert "no planned fault struck: the recoveries here answer failures that nobody planned" in unseen(sim.folder)
    assert "no recovery was seen" not in unseen(sim.folder)


@pytest.mark.parametrize(("keep", "told"), [(1, True), (2, False)])
def test_candidates_of_steps_with_more_and_with_fewer_digits(tmp_path: Path, keep: int, told: bool) -> None:
    """The restart is at step 11: from 10, before which there is 8 unless only one checkpoint is kept."""
    sim = Simulation(tmp_path / "run", Settings(faults=[F0], keep=keep))
    sim.start()
    sim.train(11)
    sim.kill(F0)
    sim.recover()
    sim.train(12)
    sim.finish()
    text = unseen(sim.folder)
    assert ("no restart had several candidates" in text) == told
    assert "had the same number of digits" not in text


def test_a_committer_that_was_fenced_off(tmp_path: Path) -> None:
    sim = Simulation(tmp_path / "run", Settings(faults=[F0]))
    sim.start()
    sim.train(5)
    sim.kill(F0)
    sim.recover()
    late = sim.of("committer").history
    sim.say(late, "fenced_off", 0, name="s00000006-a0000", detail="attempt 1 is in force")
    sim.train(12)
    sim.finish()
    assert "no writer of a fenced attempt came back" not in unseen(sim.folder)
