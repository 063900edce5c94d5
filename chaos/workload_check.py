"""Looks for the workload before anything starts: is the file or the module there, and the function in it?

Nothing is imported, torch least of all: modules are found, not run, and sources are parsed.
"""

from __future__ import annotations

import ast
import difflib
import importlib.util
import os
from importlib.machinery import ModuleSpec, PathFinder
from pathlib import Path

from chaos.errors import ExperimentError, Problem
from chaos.experiment import Experiment, line_of
from chaos.rules import BUILT_IN_WORKLOADS
from chaos.runfacts import placed_workload


def check_workload(experiment: Experiment) -> None:
    """Raises ExperimentError that names the line of `run.workload`; silent where only an import could tell."""
    name = experiment.run.workload
    if name in BUILT_IN_WORKLOADS:
        return
    place, _, function = placed_workload(experiment).rpartition(":")
    what = _file(Path(place), function) if place.endswith(".py") else _module(place, function)
    if what:
        loc = ("run", "workload")
        raise ExperimentError(Problem(experiment.source, line_of(experiment, loc), "run.workload", what))


def _file(path: Path, function: str) -> str:
    if not path.is_file():
        return f"there is no file {path} (a workload's path is seen from the experiment file's folder)"
    try:
        tree = ast.parse(path.read_bytes(), str(path))
    except OSError as error:
        return f"{path} cannot be read: {error.strerror}"
    except (SyntaxError, ValueError) as error:
        line = getattr(error, "lineno", None)
        return f"{path}{f':{line}' if line else ''} is not Python: {getattr(error, 'msg', error)}"
    names = set(_bound(tree))
    if function in names or {"*", "__getattr__"} & names:
        return ""
    near = difflib.get_close_matches(function, names, n=1)
    return f"{path} has no function {function!r}" + (f"; did you mean {near[0]}?" if near else "")


def _bound(tree: ast.Module) -> list[str]:
    """Every name that the file binds anywhere: more than its module level has, so that nothing is refused wrongly."""
    names = []
    for node in ast.walk(tree):
        if isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef, ast.ClassDef)):
            names.append(node.name)
        elif isinstance(node, ast.alias):
            names.append(node.asname or node.name)
        elif isinstance(node, ast.Name) and isinstance(node.ctx, ast.Store):
            names.append(node.id)
    return names


def _module(name: str, function: str) -> str:
    found = _find(name)
    if isinstance(found, str):
        return found
    origin = found.origin or ""
    return _file(Path(origin), function) if origin.endswith(".py") else ""  # an extension module is not looked into


def _find(name: str) -> ModuleSpec | str:
    """The module's spec, or what is wrong. Workers look in the current folder first, so that comes first here."""
    top, *rest = name.split(".")
    found = PathFinder.find_spec(top, [os.getcwd()]) or _installed(top)
    if found is None:
        return f"there is no module {top!r}, neither installed nor in {os.getcwd()}"
    full = top
    for part in rest:
        if found.origin is None and found.submodule_search_locations is None:
            return found  # only an import could tell
        if found.submodule_search_locations is None:
            return f"{full} is a module, not a package: it has no {part!r}"
        below = PathFinder.find_spec(f"{full}.{part}", list(found.submodule_search_locations))
        if below is None:
            return f"the package {full} has no module {part!r}"
        found, full = below, f"{full}.{part}"
    return found


def _installed(top: str) -> ModuleSpec | None:
    try:
        return importlib.util.find_spec(top)
    except (ImportError, ValueError):  # something in sys.modules that has no spec
        return ModuleSpec(top, None)
