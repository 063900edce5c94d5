"""YAML with line numbers: a plain value, and the line on which each part of it stands.

Pure. Duplicate keys are errors here (YAML parsers keep the last one in silence), and `1e-3` is a number.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import yaml

from chaos.errors import ExperimentError, Problem

Loc = tuple[str | int, ...]


class _Loader(yaml.SafeLoader):
    """YAML 1.1 as PyYAML reads it, with numbers such as `1e-3` that it takes for text."""


_Loader.add_implicit_resolver(
    "tag:yaml.org,2002:float", re.compile(r"^[-+]?[0-9]+[eE][-+]?[0-9]+$"), list("-+0123456789")
)


@dataclass(frozen=True)
class Marked:
    """The document's value and the line (from 1) of each key or item, by its path."""

    value: Any
    lines: dict[Loc, int]

    def line(self, loc: Loc) -> int:
        """The line of the innermost part of `loc` that is in the document."""
        while loc and loc not in self.lines:
            loc = loc[:-1]
        return self.lines.get(loc, 1)


def parse(text: str, source: str) -> Marked:
    """Parses one YAML document. Raises ExperimentError naming source and line."""
    try:
        loader = _Loader(text)
        node = loader.get_single_node()
        if node is None:
            raise ExperimentError(Problem(source, 0, "", "is empty; it needs `run: {workload: …}`"))
        lines: dict[Loc, int] = {}
        duplicates = list(_walk(node, (), lines, source))
        if duplicates:
            raise ExperimentError(*duplicates)
        return Marked(loader.construct_document(node), lines)
    except yaml.MarkedYAMLError as error:
        mark = error.problem_mark or error.context_mark
        what = error.problem or error.context or "cannot be parsed"
        line = mark.line + 1 if mark else 0
        raise ExperimentError(Problem(source, line, "", f"not YAML: {what}")) from error
    except (yaml.YAMLError, ValueError) as error:
        raise ExperimentError(Problem(source, 0, "", f"not YAML: {error}")) from error


def _walk(node: yaml.Node, loc: Loc, lines: dict[Loc, int], source: str) -> Iterator[Problem]:
    """Fills `lines`; yields a problem for each key that its mapping has already."""
    lines.setdefault(loc, node.start_mark.line + 1)
    if isinstance(node, yaml.SequenceNode):
        for index, item in enumerate(node.value):
            yield from _walk(item, (*loc, index), lines, source)
    if isinstance(node, yaml.MappingNode):
        for key, value in node.value:
            below = (*loc, str(key.value))
            line = key.start_mark.line + 1
            if below in lines:
                yield Problem(source, line, dotted(below), f"is given twice, first on line {lines[below]}")
            lines[below] = line
            yield from _walk(value, below, lines, source)


def dotted(loc: Loc) -> str:
    """`faults[0].at.point` for ("faults", 0, "at", "point")."""
    text = ""
    for part in loc:
        text += f"[{part}]" if isinstance(part, int) else f".{part}" if text else part
    return text
