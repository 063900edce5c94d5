"""Defects of the experiment and of its evidence (bugs 27, 28): what cannot be shown must be unknown."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from scenes import NO_RESTART, kill, struck

from chaos.gallery.bugs import EVERYWHERE, Bug, Case, Here, Replacement


def strikes_nothing(original: Any, here: Here) -> Any:
    return lambda *arguments: None


def cut_last_history(folder: Path) -> None:
    """The last third of the longest history that a rank wrote is gone, at a line's end."""
    path = max((folder / "history").glob("worker-*.jsonl"), key=lambda each: len(each.read_bytes().splitlines()))
    lines = path.read_bytes().splitlines(keepends=True)
    path.write_bytes(b"".join(lines[: len(lines) * 2 // 3]))


def tear_tail_of_killed(folder: Path) -> None:
    """The killed rank was writing a line when it died."""
    receipt = json.loads(next((folder / "history" / "receipts").iterdir()).read_text())
    pid = json.dumps(receipt).partition('"pid":')[2].lstrip(" ").partition(",")[0].rstrip("}")
    (path,) = (folder / "history").glob(f"worker-*-{pid}-*.jsonl")
    with path.open("ab") as file:
        file.write(path.read_bytes().splitlines()[-1][:40])


BUGS = (
    Bug(
        27, "the injector does nothing, and the run of course passes",
        (Replacement("chaos.striker._Armed._strike", strikes_nothing, EVERYWHERE),),
        Case((kill("microbatch.forward", 9, rank=1),)), Case(), {10: "fault f0 .* did not fire: it has no receipt"},
        NO_RESTART, "etcd#20455, ray#49330", verdict="unknown",
    ),
    Bug(
        28, "the evidence is cut off: the last history file is truncated", (),
        Case((struck(),), after=cut_last_history), Case((struck(),), after=tear_tail_of_killed),
        {10: "history/worker-.* was cut"}, "what a killed process", verdict="unknown",
    ),
)  # fmt: skip
