"""The mutants of a small module: which there are, and that each is in force wherever the module's names have gone."""

from __future__ import annotations

import ast
import sys
import types
from functools import cache, cached_property
from pathlib import Path

import pytest
from called import called_by, lines_of
from mutants import install, mutants, plain_function
from testmap import TestMap

SOURCE = '''
"""A module."""
from dataclasses import dataclass
LIMIT = 3

@dataclass(frozen=True)
class Box:
    size: int = 2

    @property
    def double(self):
        return self.size * 2

def small(value: int, by=1):
    """What a docstring says is prose."""
    if value < LIMIT and not value == by:
        return f"{value:>4}"
    return "large"

def gathered(values):
    found = []
    for value in values:
        found.append(value)
    return found

def all_small(values):
    return [small(value) for value in gathered(values)]

def shown(values):
    return str(Box(), all_small(values))
'''


@pytest.fixture
def small_module(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> types.ModuleType:
    module = types.ModuleType("a_small_module")
    module.__file__ = str(tmp_path / "a_small_module.py")
    monkeypatch.setitem(sys.modules, module.__name__, module)
    exec(compile(SOURCE, module.__file__, "exec"), vars(module))
    return module


def mutant_of(before: str, after: str, module: types.ModuleType) -> None:
    tree = ast.parse(SOURCE)
    (mutant,) = (m for m in mutants(module.__name__, tree) if (m.before, m.after) == (before, after))
    install(mutant, tree)


def test_which_there_are() -> None:
    found = [(m.function, m.kind, m.before, m.after) for m in mutants("m", ast.parse(SOURCE))]
    assert found == [
        ("", "constant", "3", "4"), ("", "constant", "3", "2"),
        ("", "constant", "2", "3"), ("", "constant", "2", "1"),
        ("Box.double", "return", "return self.size * 2", "return None"),
        ("Box.double", "arithmetic", "self.size * 2", "self.size // 2"),
        ("Box.double", "constant", "2", "3"), ("Box.double", "constant", "2", "1"),
        ("", "constant", "1", "2"), ("", "constant", "1", "0"),
        ("small", "boolean", "value < LIMIT and (not value == by)", "value < LIMIT or not value == by"),
        ("small", "negated", "value < LIMIT and (not value == by)", "not (value < LIMIT and (not value == by))"),
        ("small", "comparison", "value < LIMIT", "value <= LIMIT"),
        ("small", "comparison", "value < LIMIT", "value >= LIMIT"),
        ("small", "boolean", "not value == by", "value == by"),
        ("small", "comparison", "value == by", "value != by"),
        ("small", "return", "return f'{value:>4}'", "return None"),
        ("small", "return", "return 'large'", "return None"),
        ("gathered", "removed", "found.append(value)", "(removed)"),
        ("gathered", "return", "return found", "return None"),
        ("all_small", "return", "return [small(value) for value in gathered(values)]", "return None"),
        ("shown", "return", "return str(Box(), all_small(values))", "return None"),
    ]  # fmt: skip


def test_names_are_unique_and_outlive_a_change_elsewhere() -> None:
    before = {m.id for m in mutants("m", ast.parse(SOURCE)) if m.function == "small"}
    after = {m.id for m in mutants("m", ast.parse(f"import os\n{SOURCE}".replace("size * 2", "size * 5")))}
    assert len(before) == 8
    assert before < after


def test_one_in_a_function_is_in_force_where_it_was_imported(small_module: types.ModuleType) -> None:
    imported = small_module.small
    assert imported(3) == "large"
    mutant_of("value < LIMIT", "value <= LIMIT", small_module)
    assert imported(3) == "   3"


def test_one_in_a_property(small_module: types.ModuleType) -> None:
    mutant_of("self.size * 2", "self.size // 2", small_module)
    assert small_module.Box(6).double == 3


def test_the_plain_function_within_what_wraps_one() -> None:
    def double(box: list[int]) -> int:
        return len(box) * 2

    for kept in (property(double), cached_property(double), cache(double), classmethod(double)):
        assert plain_function(kept) is double


def test_a_removed_statement(small_module: types.ModuleType) -> None:
    mutant_of("found.append(value)", "(removed)", small_module)
    assert small_module.gathered([1]) == []


@pytest.mark.parametrize(("before", "after", "size", "small"), [("3", "4", 2, "   3"), ("2", "1", 2, "large")])
def test_what_was_evaluated_at_import(
    small_module: types.ModuleType, before: str, after: str, size: int, small: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    other = types.ModuleType("another_module")
    other.LIMIT = small_module.LIMIT  # type: ignore[attr-defined]
    monkeypatch.setitem(sys.modules, other.__name__, other)
    tree = ast.parse(SOURCE)
    mutant = next(m for m in mutants(small_module.__name__, tree) if (m.before, m.after) == (before, after))
    install(mutant, tree)
    assert (small_module.Box().size, small_module.small(3)) == ((1 if before == "2" else 2), small)
    assert small_module.LIMIT == other.LIMIT == (4 if before == "3" else 3)


@pytest.mark.parametrize(
    ("before", "after", "made"), [("2", "3", ([0] * 3, '{"a":1,"b":0}')), ("True", "False", ([0, 0], '{"b":0,"a":1}'))]
)
def test_what_makes_a_default_and_what_a_constant_is_bound_to(
    before: str, after: str, made: tuple[list[int], str], monkeypatch: pytest.MonkeyPatch
) -> None:
    source = """
import json
from dataclasses import dataclass, field
encode = json.JSONEncoder(sort_keys=True, separators=(",", ":")).encode

@dataclass
class Box:
    items: list = field(default_factory=lambda: [0] * 2)
"""
    module = types.ModuleType("another_small_module")
    module.__file__ = "another_small_module.py"
    monkeypatch.setitem(sys.modules, module.__name__, module)
    exec(compile(source, module.__file__, "exec"), vars(module))
    tree = ast.parse(source)
    mutant = next(m for m in mutants(module.__name__, tree) if (m.before, m.after) == (before, after))
    install(mutant, tree)
    assert (module.Box().items, module.encode({"b": 0, "a": 1})) == made


# -- which tests come first


def test_lines_of_a_function_and_of_a_module(small_module: types.ModuleType) -> None:
    first = SOURCE.splitlines().index("def small(value: int, by=1):") + 1
    assert lines_of(small_module.__name__, "small") == range(first, first + 5)
    decorator = SOURCE.splitlines().index("    @property") + 1
    assert lines_of(small_module.__name__, "Box.double") == range(decorator, decorator + 3)
    assert {1, 9999} <= set(lines_of(small_module.__name__, ""))


def test_what_a_statement_calls_and_what_that_calls_in_turn(small_module: types.ModuleType) -> None:
    found = {m.function: m for m in mutants(small_module.__name__, ast.parse(SOURCE))}
    lines = {name: (small_module.__name__, lines_of(small_module.__name__, name)) for name in found if name}
    assert set(called_by(found["shown"])) == {lines["all_small"], lines["small"], lines["gathered"]}
    assert set(called_by(found["gathered"])) == set()


def test_first_the_tests_that_together_go_everywhere() -> None:
    lines = {"wide": {"m": [1, 2, 3, 4]}, "part": {"m": [1, 2]}, "other": {"m": [5], "n": [1]}, "none": {"n": [1]}}
    known = TestMap("", seconds=dict.fromkeys(lines, 0.1), lines=lines)
    assert known.spread(["m"]) == {"wide": 0, "other": 1, "part": 2, "none": 3}
    assert known.spread(["m", "n"]) == {"wide": 0, "other": 1, "part": 2, "none": 3}
    slow = TestMap("", seconds={**known.seconds, "wide": 9.0}, lines=lines)
    assert slow.spread(["m"])["part"] < slow.spread(["m"])["wide"]


def test_how_rare_the_lines_are_that_a_test_goes_through() -> None:
    lines = {"a": {"m": [1, 2]}, "b": {"m": [2, 9]}, "c": {}}
    assert TestMap("", lines=lines).rarity("m", range(1, 5)) == {"a": 1.5, "b": 0.5, "c": 0}


def test_what_is_evaluated_at_import_is_looked_at_by_the_tests_of_the_modules_own_file_too() -> None:
    found = {m.after: m for m in mutants("p.box", ast.parse("size = 2\ndef f():\n    return 1"))}
    default, within = found["3"], found["return None"]
    own, other = "tests/test_box.py::a", "tests/test_other.py::b"
    known = TestMap("", seconds={own: 0.1, other: 0.1}, lines={own: {}, other: {}})
    assert (known.covering(default), known.covering(within)) == ({own}, set())
    executing = TestMap("", seconds={own: 0.1, other: 0.1}, lines={own: {}, other: {"p.box": [3]}})
    assert (executing.covering(default), executing.covering(within)) == ({own, other}, {other})
