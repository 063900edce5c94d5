"""Two records, or two states, of the same moment → the parts that differ, and by how much. Pure.

Equal means equal bits. What is missing on one side differs; so does a number that is not finite, even where both have
it, unless both skipped that update for it.
"""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass

from chaos.diff.parts import Role, part_of, place
from chaos.diff.reference import Held
from chaos.diff.trace import StepRecord, TraceError


@dataclass(frozen=True)
class Difference:
    """One part that differs. magnitude: largest absolute difference, relative: beside the larger of the two numbers;
    None where there are no values. finite: false if one of the numbers is NaN or infinite.
    """

    part: str
    ranks: tuple[int, ...]
    detail: str
    magnitude: float | None = None
    relative: float | None = None
    finite: bool = True


def merged(differences: Iterable[Difference]) -> tuple[Difference, ...]:
    """One difference a part, with all its ranks and the largest magnitude."""
    of_part: dict[str, list[Difference]] = defaultdict(list)
    for difference in differences:
        of_part[difference.part].append(difference)
    merged = []
    for part in sorted(of_part, key=place):
        many = of_part[part]
        known = [d for d in many if d.magnitude is not None]
        largest = max(known, key=lambda d: d.magnitude or 0.0, default=many[0])
        # What has no magnitude, NaN above all, must not be hidden behind what has one.
        shown = min((d for d in many if d.magnitude is None), key=lambda d: d.finite, default=largest)
        ranks = tuple(sorted({rank for d in many for rank in d.ranks}))
        merged.append(Difference(part, ranks, shown.detail, shown.magnitude, shown.relative, shown.finite))
    return tuple(merged)


def record_differences(a: StepRecord, b: StepRecord) -> list[Difference]:
    """Of the same update on the same rank."""
    rank, found = (b.rank,), []
    if a.ids != b.ids if a.ids is not None and b.ids is not None else a.ids_digest != b.ids_digest:
        found.append(Difference(Role.SAMPLES, rank, _ids_detail(a, b)))
    both_skipped = a.skipped and b.skipped
    found += _numbers_differ(Role.RATE, a.lr, b.lr, rank, allowed=False)
    found += _numbers_differ(Role.LOSS, (a.loss,), (b.loss,), rank, allowed=both_skipped)
    found += _numbers_differ(Role.NORM, _optional(a.gradient_norm), _optional(b.gradient_norm), rank, both_skipped)
    if a.skipped != b.skipped:
        found.append(Difference(Role.SKIPPED, rank, f"only {'A' if a.skipped else 'B'} skipped the update"))
    if a.samples_seen != b.samples_seen:
        found.append(Difference(Role.SEEN, rank, f"A {a.samples_seen}, B {b.samples_seen}"))
    return [*found, *held_differences(Held(a.state, a.values), Held(b.state, b.values), b.rank)]


def _optional(number: str | None) -> tuple[str, ...]:
    return () if number is None else (number,)


def _ids_detail(a: StepRecord, b: StepRecord) -> str:
    if a.ids is None or b.ids is None:
        return "other samples (only their digests are known)"
    if sorted(a.ids) == sorted(b.ids):
        return f"the same {len(a.ids)} samples in another order"
    return f"A {_first(a.ids)}, B {_first(b.ids)}"


def _first(ids: tuple[int, ...]) -> str:
    return ", ".join(map(str, ids[:8])) + (" …" if len(ids) > 8 else "")


def held_differences(a: Held, b: Held, rank: int) -> Iterator[Difference]:
    for part in a.state.keys() | b.state.keys():
        if part not in a.state or part not in b.state:
            yield Difference(part, (rank,), f"only {'A' if part in a.state else 'B'} has it")
        elif a.state[part] != b.state[part]:
            inside = list(_values_differ(_of_part(a.values, part), _of_part(b.values, part), rank))
            yield _widest(part, rank, inside)
    covered = {part for part in a.state if a.state[part] != b.state.get(part)}
    for name in sorted(a.values.keys() | b.values.keys()):
        if part_of(name) not in covered:
            yield from _values_differ(_only(a.values, name), _only(b.values, name), rank)


def _of_part(values: Mapping[str, tuple[str, ...]], part: str) -> dict[str, tuple[str, ...]]:
    return {name: numbers for name, numbers in values.items() if part_of(name) == part}


def _only(values: Mapping[str, tuple[str, ...]], name: str) -> dict[str, tuple[str, ...]]:
    return {name: values[name]} if name in values else {}


def _widest(part: str, rank: int, inside: list[Difference]) -> Difference:
    if not inside:
        return Difference(part, (rank,), "another digest")
    largest = max(inside, key=lambda d: d.magnitude or 0.0)
    widest = min((d for d in inside if d.magnitude is None), key=lambda d: d.finite, default=largest)
    detail = f"{widest.part}: {widest.detail}"
    return Difference(part, (rank,), detail, widest.magnitude, widest.relative, widest.finite)


def _values_differ(
    a: Mapping[str, tuple[str, ...]], b: Mapping[str, tuple[str, ...]], rank: int
) -> Iterator[Difference]:
    for name in sorted(a.keys() | b.keys()):
        if name not in a or name not in b:
            yield Difference(name, (rank,), f"only {'A' if name in a else 'B'} has it")
        else:
            yield from _numbers_differ(name, a[name], b[name], (rank,), allowed=False)


def _numbers_differ(
    part: str, a: tuple[str, ...], b: tuple[str, ...], ranks: tuple[int, ...], allowed: bool
) -> Iterator[Difference]:
    """allowed: whether equal numbers may be not finite."""
    if len(a) != len(b):
        yield Difference(part, ranks, f"A has {len(a)} numbers, B {len(b)}")
        return
    pairs = [(number(x, part), number(y, part)) for x, y in zip(a, b, strict=True)]
    differing = [pair for pair, x, y in zip(pairs, a, b, strict=True) if x != y]
    wild = [pair for pair in pairs if not all(map(math.isfinite, pair))]
    if wild and not (allowed and not differing):
        yield Difference(part, ranks, f"not finite: A {wild[0][0]!r}, B {wild[0][1]!r}", finite=False)
    elif differing:
        x, y = max(differing, key=lambda pair: abs(pair[0] - pair[1]))
        yield Difference(part, ranks, f"A {x!r}, B {y!r}", abs(x - y), relative(x, y))


def number(text: str, where: str) -> float:
    """The float of a `float.hex()` text. Raises TraceError."""
    try:
        value = float.fromhex(text)
    except (ValueError, OverflowError):
        value = None
    if value is None or value.hex() != text:
        raise TraceError(f"{where}: {text!r:.40} is no float.hex() number: its format asks for that")
    return value


def relative(x: float, y: float) -> float:
    """|x − y| beside the larger of |x| and |y|."""
    larger = max(abs(x), abs(y))
    return abs(x - y) / larger if larger else 0.0
