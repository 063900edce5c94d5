"""The list of kill points, with and without what a run passed."""

from __future__ import annotations

from io import StringIO

from rich.console import Console

from chaos.points import CATALOGUE, Role
from chaos.schema import RunSettings
from chaos.sweep.in_flight import in_flight
from chaos.sweep.listing import listing, render
from chaos.sweep.outline import Outline

OUTLINE = Outline(
    RunSettings(workload="tiny", steps=60),
    {
        (Role.RANK, 0): {"step.end": 60, "user.eval": 2}, (Role.RANK, 1): {"step.end": 60},
        (Role.DATA, 1): {"data.read": 3}, (Role.SUPERVISOR, None): {"log.before_link": 2},
        (Role.COMMITTER, None): {"log.before_link": 9},
    },
    {(Role.RANK, 1): {"step.end": 57, "recover.loaded": 1}, (Role.SUPERVISOR, None): {"log.before_link": 1}},
    {"recover.detected": 1, "log.before_link": 3},
    (),
)  # fmt: skip


def printed(outline: Outline | None, width: int = 400) -> str:
    console = Console(file=StringIO(), width=width, color_system=None)
    console.print(render(listing(outline), recorded=outline is not None))
    assert isinstance(console.file, StringIO)
    return console.file.getvalue()


def test_every_point_says_what_is_in_flight_and_no_two_stages_the_same_as_their_opposite() -> None:
    assert all(in_flight(point) for point in CATALOGUE)
    assert in_flight("user.mine")
    for before, after in (
        ("log.before_link", "log.after_link"), ("manifest.before_link", "manifest.after_link"),
        ("publish.before", "publish.after"), ("save.reported", "save.done"), ("step.begin", "step.end"),
        ("retire.before", "retire.logged"), ("recover.choose.before", "recover.choose.after"),
    ):  # fmt: skip
        assert in_flight(before) != in_flight(after)


def test_the_catalogue_group_by_group() -> None:
    lines = printed(None).splitlines()
    titles = [line.rstrip() for line in lines if line.rstrip() in {point.group for point in CATALOGUE.values()}]
    assert titles == list(dict.fromkeys(point.group for point in CATALOGUE.values()))
    assert all(any(name in line and point.description in line for line in lines) for name, point in CATALOGUE.items())


def test_what_a_run_and_its_recovery_passed() -> None:
    rows = {line.split()[0]: [cell.strip() for cell in line.split("  ") if cell.strip()]
            for line in printed(OUTLINE).splitlines() if line.strip()}  # fmt: skip
    assert rows["step.end"][1:3] == ["rank 0: 60, rank 1: 60", "rank 1: 57"]
    assert rows["publish.after"][1:3] == ["none", "none"]
    assert rows["data.read"][1:3] == ["data 1: 3", "not counted"]
    assert rows["log.before_link"][1:3] == ["committer: 9, supervisor: 2", "supervisor: 2"]  # a fence and a choice
    assert rows["recover.detected"][1:3] == ["none", "supervisor: 1"]
    assert rows["user.eval"][1:] == ["rank 0: 2", "none", "what the code under test is doing"]
    assert rows["step.end"][3] == in_flight("step.end")


def test_the_same_as_data() -> None:
    rows = {row.name: row.to_json() for row in listing(OUTLINE)}
    assert list(rows) == [*CATALOGUE, "user.eval"]
    count = {"point": "log.before_link", "role": "supervisor", "rank": None}
    again = [{**count, "attempt": attempt, "hits": 1} for attempt in (0, 1)]
    assert rows["log.before_link"]["recovery"] == again
    assert (rows["data.read"]["recovery"], rows["data.read"]["passages"][0]["hits"]) == (None, 3)
    assert rows["step.end"].keys() == {
        "name", "group", "roles", "description", "in_flight", "passages", "recovery",
    }  # fmt: skip
    bare = {row.name: row for row in listing(None)}
    assert (bare["step.end"].passages, bare["data.read"].passages) == ((), None)


def test_on_a_narrow_terminal_nothing_is_lost() -> None:
    text = " ".join(printed(OUTLINE, width=50).split())
    assert "rank 0: 60, rank 1: 60" in text
    assert in_flight("optimizer.after") in text
