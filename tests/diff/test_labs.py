"""Each fault of `lab linreg` and each omission of `lab resume` is named as the cause, with its first step."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import torch

from chaos.diff.command import diff
from chaos.labs.choices import Fault, Omission
from chaos.labs.linreg_proof import prove
from chaos.labs.resume_journey import Request, travel

# What differs at the restore, the cause, the first update that it can change, which is the first one that it changes.
# The steps are those of reference A; of B the rates are made from the scheduler one update later.
LINREG = {
    "drop-optimizer": ("optimizer", "optimizer history lost", 20),
    "reset-cursor": ("progress", "cursor behind", 20),
    "reset-rng": ("rng.python", "generator re-seeded", 21),
}
RESUME = {
    "optimizer": ("optimizer", "optimizer history lost", 6),
    "scheduler": ("scheduler", "rate shifted", 7),
    "cursor": ("progress", "cursor behind", 6),
    "python-rng": ("rng.python", "generator re-seeded", 6),
    "numpy-rng": ("rng.numpy", "generator re-seeded", 6),
    "torch-rng": ("rng.torch", "generator re-seeded", 6),
}


def _is_named(continuous: Path, other: Path, restored: int, part: str, kind: str, update: int) -> None:
    result = diff(str(continuous), str(other))
    first = result.report["first"]
    assert result.exit_status == 1
    assert (first["where"], first["step"]) == ("restored", restored)
    assert (first["earliest_update"], first["changed_update"]) == (update, update)
    assert {d["part"] for d in first["differences"]} - {"cursor"} == {part}
    assert [(finding[0]["kind"], finding[0]["part"]) for finding in first["causes"]] == [(kind, part)]


def test_every_choice_of_the_labs_is_here() -> None:
    assert LINREG.keys() == {fault.value for fault in Fault}
    assert RESUME.keys() == {omission.value for omission in Omission}


@pytest.mark.parametrize("fault", [None, *LINREG])
def test_linreg(fault: str | None, tmp_path: Path) -> None:
    folder = prove(80, None, tmp_path / "lab", fault and Fault(fault), "command").folder
    if fault is None:
        result = diff(str(folder / "uninterrupted"), str(folder / "resumed"))
        assert (result.exit_status, result.report["compared"]["records"]) == (0, 61)
    else:
        _is_named(folder / "uninterrupted", folder / "resumed", 19, *LINREG[fault])


def test_linreg_says_how_far_the_cursor_is_off(tmp_path: Path) -> None:
    folder = prove(80, None, tmp_path / "lab", Fault.RESET_CURSOR, "command").folder
    first = diff(str(folder / "uninterrupted"), str(folder / "resumed")).report["first"]
    assert "behind by 12 samples" in first["causes"][0][0]["text"]
    sizes: dict[str, Any] = {d["part"]: d["magnitude"] for d in first["changes"]}
    assert sizes["model"] > 0
    assert sizes["optimizer"] > 0


@pytest.fixture(scope="module")
def journeys(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Those of `lab resume`, one after the other in this process, which changes no number."""
    folder = tmp_path_factory.mktemp("resume")
    cut = str(folder / "cut" / "checkpoint.json")
    wanted = [("continuous", 10, None, ()), ("cut", 5, None, ()), ("full", 5, cut, ()),
              *((name, 5, cut, (name,)) for name in RESUME)]  # fmt: skip
    mode = torch.get_deterministic_debug_mode()
    try:
        for name, updates, start, omit in wanted:
            travel(Request(name, str(folder / name), updates, start, omit))
    finally:
        torch.set_deterministic_debug_mode(mode)
    return folder


@pytest.mark.parametrize("omitted", RESUME)
def test_resume(omitted: str, journeys: Path) -> None:
    _is_named(journeys / "continuous", journeys / omitted, 5, *RESUME[omitted])


def test_a_full_resume_differs_in_nothing(journeys: Path) -> None:
    result = diff(str(journeys / "continuous"), str(journeys / "full"))
    assert (result.exit_status, result.report["compared"]["records"], result.report["compared"]["starts"]) == (0, 5, 1)
