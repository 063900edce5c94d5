"""A gallery from its folder of bugs to its result."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from chaos.errors import GalleryError
from chaos.gallery.bugs import Bug, load_bugs
from chaos.gallery.conduct import Conductor
from chaos.gallery.judge import Row
from chaos.interrupts import Interrupts
from chaos.life import Place

NUMBERS = range(1, 33)  # of the list of recovery bugs that the gallery is to show
_SPARES = 2  # beside what a run needs: two kills in a row find somebody warm
_FOR_RIVALS = 8  # CPUs for runs with supervisors of their own


@dataclass(frozen=True)
class Watch:
    """Who is told what goes on."""

    begin: Callable[[int], None] = lambda total: None
    bug: Callable[[Bug], None] = lambda bug: None
    row: Callable[[Row], None] = lambda row: None


@dataclass(frozen=True)
class Gallery:
    """rows: one for each variant that was planted. asked: the numbers that were to be shown."""

    rows: tuple[Row, ...]
    asked: tuple[int, ...]

    def _all(self, holds: Callable[[Row], bool]) -> tuple[int, ...]:
        """Numbers of which every variant is so."""
        there = {row.number for row in self.rows}
        return tuple(n for n in self.asked if n in there and all(holds(row) for row in self.rows if row.number == n))

    @property
    def missing(self) -> tuple[int, ...]:
        """Numbers that nobody has planted."""
        return tuple(number for number in self.asked if number not in {row.number for row in self.rows})

    @property
    def exit_status(self) -> int:
        """0 if everything that was asked for is as it must be, 1 if not."""
        return 0 if self._all(lambda row: row.good) == self.asked else 1

    def to_json(self) -> dict[str, Any]:
        """What `killpoint gallery --json` prints."""
        return {
            "asked": len(self.asked), "planted": len(self._all(lambda row: row.planted)),
            "caught": len(self._all(lambda row: row.caught)), "named": len(self._all(lambda row: row.named)),
            "controls_valid": len(self._all(lambda row: row.control == "valid" and row.control_told)),
            "good": len(self._all(lambda row: row.good)), "missing": list(self.missing),
            "rows": [{**asdict(row), "good": row.good} for row in self.rows],
        }  # fmt: skip


def default_folder() -> Path:
    """Where a checkout has the planted bugs: they are tests, and no part of what is installed."""
    return Path(__file__).resolve().parents[2] / "tests" / "planted"


def show(folder: Path, only: Sequence[int], output: Path, watch: Watch) -> Gallery:
    """Plants the bugs with these numbers, all for none. Raises GalleryError, and KeyboardInterrupt if interrupted."""
    asked = tuple(dict.fromkeys(only)) or tuple(NUMBERS)
    found = {key: bug for key, bug in load_bugs(folder).items() if bug.number in asked}
    if not found:
        raise GalleryError(f"{folder}: has none of the bugs {_listed(asked)}")
    watch.begin(len(found))
    with Interrupts() as interrupts, Place(interrupts, reuse=True, spares=_SPARES, more_cpus=_FOR_RIVALS) as place:
        rows = tuple(Conductor(folder.resolve(), output, place).rows(found, watch.bug, watch.row))
    return Gallery(rows, asked)


def _listed(numbers: Iterable[int]) -> str:
    return ", ".join(map(str, numbers))
