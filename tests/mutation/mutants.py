"""Mutants of a module, one changed node of its syntax tree each: which there are, and how one is put into force.

A mutant is named by its function's text and its number in it, never by a line, so results outlive changes elsewhere.
What is prose (strings), what types say, and what only asserts (`strict=`) is left alone.
"""

from __future__ import annotations

import ast
import copy
import dataclasses
import hashlib
import re
import sys
import types
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

_COMPARE: dict[type[ast.cmpop], tuple[type[ast.cmpop], ...]] = {
    ast.Lt: (ast.LtE, ast.GtE), ast.LtE: (ast.Lt, ast.Gt), ast.Gt: (ast.GtE, ast.LtE), ast.GtE: (ast.Gt, ast.Lt),
    ast.Eq: (ast.NotEq,), ast.NotEq: (ast.Eq,), ast.Is: (ast.IsNot,), ast.IsNot: (ast.Is,),
    ast.In: (ast.NotIn,), ast.NotIn: (ast.In,),
}  # fmt: skip
_BINARY: dict[type[ast.operator], type[ast.operator]] = {
    ast.Add: ast.Sub, ast.Sub: ast.Add, ast.Mult: ast.FloorDiv, ast.FloorDiv: ast.Mult, ast.Mod: ast.FloorDiv,
    ast.BitAnd: ast.BitOr, ast.BitOr: ast.BitAnd,
}  # fmt: skip
_SKIPPED = {"annotation", "returns", "decorator_list", "keywords_of_class", "format_spec", "type_comment"}
_TEXT = (ast.JoinedStr, ast.List, ast.Tuple)
_PLAIN = (int, float, str, tuple, frozenset, set, dict, re.Pattern, types.MethodType)


@dataclass(frozen=True)
class Mutant:
    """function: its qualified name, empty for what is evaluated at import. lines: of the statement, [first, last]."""

    id: str
    module: str
    function: str
    kind: str
    lines: tuple[int, int]
    statement: str
    before: str
    after: str
    apply: Callable[[], None]


@dataclass(frozen=True)
class _Place:
    """Where a node hangs: parent.field, or parent.field[index]."""

    parent: ast.AST
    field: str
    index: int | None

    def put(self, node: ast.AST) -> None:
        if self.index is None:
            setattr(self.parent, self.field, node)
        else:
            getattr(self.parent, self.field)[self.index] = node


def mutants(module: str, tree: ast.Module) -> list[Mutant]:
    """All mutants of the tree, in its order. Each one's `apply` changes the tree in place, for good."""
    found: list[Mutant] = []
    counts: dict[str, int] = {}
    digests: dict[ast.AST, str] = {}
    for place, node, function, owner, statement in _walk(tree):
        whole = owner or statement
        if whole not in digests:
            digests[whole] = hashlib.sha256(ast.unparse(whole).encode()).hexdigest()[:8]
        for kind, new in _changes(place, node):
            text = f"{module}:{function or '-'}:{digests[whole]}"
            counts[text] = counts.get(text, 0) + 1
            name = f"{text}:{counts[text]}"
            texts_of = _short(statement), _short(node), _short(new)
            apply = _putter(place, ast.copy_location(new, node))
            found.append(Mutant(name, module, function, kind, _lines(statement, node), *texts_of, apply))
    return found


def _putter(place: _Place, new: ast.AST) -> Callable[[], None]:
    return lambda: place.put(ast.fix_missing_locations(new))


def _short(node: ast.AST) -> str:
    if isinstance(node, ast.If) and isinstance(node.test, ast.Constant) and node.test.value is False:
        return "(removed)"
    return ast.unparse(node).partition("\n")[0][:160]


def _lines(statement: ast.stmt, node: ast.AST) -> tuple[int, int]:
    """First and last line of what the statement itself evaluates: not of the body of an `if` and the like."""
    if isinstance(node, ast.expr) and (hasattr(statement, "body") or isinstance(statement, ast.Match)):
        return node.lineno, node.end_lineno or node.lineno
    return statement.lineno, statement.end_lineno or statement.lineno


_Found = tuple[_Place, ast.AST, str, ast.AST | None, ast.stmt]


def _walk(tree: ast.Module) -> Iterator[_Found]:
    """(place, node, function, the function's node, statement) of every node that may be changed."""

    def visit(node: ast.AST, names: tuple[str, ...], owner: ast.AST | None, statement: Any) -> Iterator[_Found]:
        inner_names, inner = names, owner
        if isinstance(node, (ast.FunctionDef, ast.ClassDef)) and owner is None:
            inner_names, inner = (*names, node.name), node if isinstance(node, ast.FunctionDef) else None
        for field, value in ast.iter_fields(node):
            if field in _SKIPPED or (isinstance(node, ast.ClassDef) and field == "keywords"):
                continue
            within = (inner_names, inner) if field == "body" else (names, owner)
            children = value if isinstance(value, list) else [value]
            for index, child in enumerate(children):
                if not isinstance(child, ast.AST) or _is_left_alone(child):
                    continue
                here = child if isinstance(child, ast.stmt) else statement
                function = ".".join(within[0]) if within[1] is not None else ""
                if here is not None:
                    place = _Place(node, field, index if isinstance(value, list) else None)
                    yield place, child, function, within[1], here
                yield from visit(child, *within, here)

    yield from visit(tree, (), None, None)


def _is_left_alone(node: ast.AST) -> bool:
    """`strict=` only asserts; a check's number, `ID, NAME = …`, has been taken over elsewhere by the time of a fork."""
    if isinstance(node, ast.Assign):
        return isinstance(node.targets[0], ast.Tuple) and ast.unparse(node.targets[0]).startswith("(ID,")
    return isinstance(node, ast.keyword) and node.arg == "strict"


def _changes(place: _Place, node: ast.AST) -> Iterator[tuple[str, ast.AST]]:
    match node:
        case ast.Compare():
            for i, op in enumerate(node.ops):
                for other in _COMPARE[type(op)]:
                    new = copy.deepcopy(node)
                    new.ops[i] = other()
                    yield "comparison", new
        case ast.BoolOp():
            yield "boolean", ast.BoolOp(ast.Or() if isinstance(node.op, ast.And) else ast.And(), node.values)
        case ast.UnaryOp(op=ast.Not() | ast.Invert()):
            yield "boolean", node.operand
        case ast.BinOp() if type(node.op) in _BINARY and not any(_is_text(side) for side in (node.left, node.right)):
            yield "arithmetic", ast.BinOp(node.left, _BINARY[type(node.op)](), node.right)
        case ast.Constant(value=bool()):
            yield "constant", ast.Constant(not node.value)
        case ast.Constant(value=int(value)):
            yield from (("constant", ast.Constant(value + by)) for by in (1, -1))
        case ast.Return(value=ast.expr() as value) if not (isinstance(value, ast.Constant) and value.value is None):
            yield "return", ast.Return(ast.Constant(None))
    if isinstance(node, ast.stmt) and _removable(node):
        yield "removed", ast.If(ast.Constant(False), [node], [])  # still a generator, its names still local
    if _is_condition(place) and isinstance(node, ast.expr) and not _negated_otherwise(node):
        yield "negated", ast.UnaryOp(ast.Not(), node)


def _is_text(node: ast.expr) -> bool:
    return isinstance(node, _TEXT) or (isinstance(node, ast.Constant) and isinstance(node.value, (str, bytes)))


def _removable(node: ast.stmt) -> bool:
    match node:
        case ast.Expr(value=ast.Constant()):
            return False
        case ast.Expr() | ast.AugAssign() | ast.Raise() | ast.Continue() | ast.Break() | ast.Return(value=None):
            return True
        case ast.Assign():
            return all(isinstance(target, (ast.Attribute, ast.Subscript)) for target in node.targets)
    return False


def _is_condition(place: _Place) -> bool:
    return place.field in ("test", "guard") or (isinstance(place.parent, ast.comprehension) and place.field == "ifs")


def _negated_otherwise(node: ast.expr) -> bool:
    single = isinstance(node, ast.Compare) and len(node.ops) == 1
    return single or (isinstance(node, ast.UnaryOp) and isinstance(node.op, ast.Not)) or isinstance(node, ast.Constant)


def install(mutant: Mutant, tree: ast.Module) -> None:
    """Puts the mutant into force in this process, wherever its module's functions and constants have gone already."""
    module = sys.modules[mutant.module]
    mutant.apply()
    code = compile(tree, module.__file__ or "", "exec")
    if not mutant.function:
        _at_import(module, code)
        return
    live: Any = module
    for name in mutant.function.split("."):
        code = next(c for c in code.co_consts if isinstance(c, types.CodeType) and c.co_name == name)
        live = vars(live)[name]
    plain_function(live).__code__ = code


def plain_function(live: Any) -> Any:
    """The plain function within a property, whether it is kept or not, a class method, a cache."""
    for name in ("fget", "func", "__func__", "__wrapped__"):
        live = getattr(live, name, None) or live
    return live


def _at_import(module: types.ModuleType, code: types.CodeType) -> None:
    """Constants and default values: evaluated anew, and put in the place of the old ones under the same name."""
    fresh = types.ModuleType(module.__name__)
    fresh.__file__ = module.__file__
    sys.modules[module.__name__] = fresh  # where dataclasses look names up
    exec(code, vars(fresh))
    sys.modules[module.__name__] = module
    for name, old in list(vars(module).items()):
        new = vars(fresh).get(name)
        if isinstance(old, _PLAIN) and old != new:
            for other in list(sys.modules.values()):
                if vars(other).get(name) is old:
                    setattr(other, name, new)
        elif isinstance(old, type) and old.__module__ == module.__name__:
            for method, value in vars(old).items():
                if isinstance(value, types.FunctionType):
                    value.__defaults__ = vars(new)[method].__defaults__
                elif isinstance(value, (int, float, str, tuple)) and not method.startswith("__"):
                    setattr(old, method, vars(new)[method])
            for field, other in zip(_fields(old), _fields(new), strict=True):
                if isinstance(field.default_factory, types.FunctionType):
                    field.default_factory.__code__ = other.default_factory.__code__
        elif isinstance(old, types.FunctionType) and old.__module__ == module.__name__:
            old.__defaults__, old.__kwdefaults__ = new.__defaults__, new.__kwdefaults__


def _fields(kind: Any) -> tuple[Any, ...]:
    return dataclasses.fields(kind) if dataclasses.is_dataclass(kind) else ()
