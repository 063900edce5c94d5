"""What the tests of this folder share: how a ledger is altered, and a run folder as the page's values."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

from simulated_run import Edit

from chaos.page.pages import RunPage, Struck
from chaos.page.read import read_folder

Page = Callable[..., Path]
EVIL = "</script><script>alert(1)</script><img src=x onerror=alert(1)>'\"&{{7*7}}\u2028\x1b[31m"

ROWS = ("position", "sample_id", "content", "step", "microbatch")


def shown(folder: Path) -> RunPage:
    found = read_folder(folder)
    assert isinstance(found, RunPage)
    return found


def on_rows(attempt: int, step: int, rank: int, index: list[int]) -> Edit:
    """One rank's ledger of one step has these of its rows; everything is sealed after it."""

    def edit(kind: str, thing: Any) -> None:
        if kind == "rows" and (thing["attempt"], int(thing["step"][0]), thing["rank"]) == (attempt, step, rank):
            for name in ROWS:
                thing[name] = thing[name][index]

    return edit


def gap_on(attempt: int, step: int, rank: int) -> Edit:
    return on_rows(attempt, step, rank, [0, 3])


def duplicate_on(attempt: int, step: int, rank: int) -> Edit:
    return on_rows(attempt, step, rank, [0, 1, 1, 2, 2, 3])


def evil(page: RunPage) -> RunPage:
    """A run whose every text from disk would like to be markup."""
    marks = tuple(replace(mark, who=EVIL, text=EVIL) for mark in page.timeline.marks)
    nodes = tuple(replace(node, damage=EVIL, rejected_by=((1, EVIL),)) for node in page.lineage.nodes)
    return replace(
        page, title=EVIL, folder=EVIL, sentences=(EVIL,), facts=(("seed", EVIL),), reproduce=EVIL, unseen=(EVIL,),
        invariants=tuple(replace(each, witness=EVIL) for each in page.invariants),
        struck=(Struck(0, EVIL, EVIL, EVIL, True, EVIL),), timeline=replace(page.timeline, marks=marks),
        lineage=replace(page.lineage, nodes=nodes),
    )  # fmt: skip
