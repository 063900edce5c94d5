"""What a mutant's statement calls, as lines of modules: tests that go where few go there will notice if it does not."""

from __future__ import annotations

import re
import sys
import types
from collections.abc import Iterator
from typing import Any

from mutants import Mutant, plain_function

Part = tuple[str, range]  # module, lines


def lines_of(module: str, function: str) -> range:
    """Of the function with this qualified name; of the module without one."""
    found: Any = sys.modules[module]
    for name in filter(None, function.split(".")):
        found = vars(found)[name]
    code = getattr(plain_function(found), "__code__", None)
    return range(1, 1 << 20) if code is None else _lines(code)


def uses(module: str) -> set[str]:
    """The modules that something in its namespace is of."""
    found = vars(sys.modules[module]).values()
    return {each.__name__ if isinstance(each, types.ModuleType) else getattr(each, "__module__", "") for each in found}


def called_by(mutant: Mutant) -> Iterator[Part]:
    """Each function that the statement names, and those of the same module that it calls in turn."""
    space = vars(sys.modules[mutant.module])
    seen: set[Any] = set()
    for text in sorted(set(re.findall(r"[A-Za-z_][\w.]*", mutant.statement))):
        first, *others = text.split(".")
        found = space.get(mutant.function.partition(".")[0] if first in ("self", "cls") else first)
        for other in others:
            found = getattr(found, other, None)
        yield from _within(found, seen)


def _within(found: Any, seen: set[Any]) -> Iterator[Part]:
    function = plain_function(found)
    if not isinstance(function, types.FunctionType) or function in seen:
        return
    seen.add(function)
    yield function.__module__, _lines(function.__code__)
    for name in _names(function.__code__):
        other = plain_function(function.__globals__.get(name))
        if getattr(other, "__module__", None) == function.__module__:
            yield from _within(other, seen)


def _names(code: types.CodeType) -> Iterator[str]:
    yield from code.co_names
    for inner in code.co_consts:
        if isinstance(inner, types.CodeType):
            yield from _names(inner)


def _lines(code: types.CodeType) -> range:
    last = max((line for _, _, line in code.co_lines() if line is not None), default=code.co_firstlineno)
    inner = [_lines(each).stop - 1 for each in code.co_consts if isinstance(each, types.CodeType)]
    return range(code.co_firstlineno, max([last, *inner]) + 1)
