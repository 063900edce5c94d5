"""How a defect gets into the processes of a run: with the kill points, which every process is given anyway.

No production code knows of it. A process that serves run after run has each run's replacements, and no others: they
are put in place when it is told whom it serves, and what was there before is put back first.
"""

from __future__ import annotations

import importlib
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

from chaos.faults import Fault
from chaos.gallery.bugs import Here, Replacement, load_bugs
from chaos.striker import Striker

if TYPE_CHECKING:
    from storage.history import History


class Planted(NamedTuple):
    """Which defect, and whether in the run where it bites or in its latent control. It is loaded where it is needed."""

    folder: Path
    key: str
    control: bool

    def replacements(self) -> tuple[Replacement, ...]:
        """The defect's, then those of what else happens in the run."""
        bug = load_bugs(self.folder)[self.key]
        return (*bug.defect, *(bug.control if self.control else bug.plant).also)


class Carrier(Striker):
    """The run's own kill points, which bring the defect along."""

    __slots__ = ("_planted",)

    def __init__(self, planted: Planted, run: str, folder: Path, faults: tuple[Fault, ...], *more: Any) -> None:
        super().__init__(run, folder, faults, *more)
        self._planted = planted

    def __getstate__(self) -> Any:
        return (self._planted, super().__getstate__())

    def __setstate__(self, state: tuple[Any, ...]) -> None:
        planted, plan = state
        super().__setstate__(plan)
        self._planted = Planted(*planted)

    def enter(self, attempt: int, role: str, rank: int | None, history: History | None) -> None:
        """As any kill points; the replacements are in place when it returns."""
        install(self._planted, self._plan.run, self._plan.folder, role, attempt, rank)
        super().enter(attempt, role, rank, history)


@dataclass(frozen=True)
class _Installed:
    what: tuple[Planted, str, bool]
    here: Here
    undo: tuple[tuple[Any, str, Any], ...]


_in_place: _Installed | None = None


def install(planted: Planted, run: str, folder: Path, role: str, attempt: int, rank: int | None) -> None:
    """Puts the replacements for this role in place, once for each run, and tells them where they are."""
    global _in_place
    worker = role in ("rank", "standby")
    if _in_place is None or _in_place.what != (planted, run, worker):
        uninstall()
        here = Here(folder, run.startswith("twin-"))
        undo = tuple(_replace(each, here) for each in planted.replacements() if role in each.roles)
        _in_place = _Installed((planted, run, worker), here, undo)
    _in_place.here.attempt, _in_place.here.rank = attempt, rank


def uninstall() -> None:
    """Everything in this process is again what it was."""
    global _in_place
    if _in_place is not None:
        for owner, name, original in reversed(_in_place.undo):
            setattr(owner, name, original)
    _in_place = None


def _replace(each: Replacement, here: Here) -> tuple[Any, str, Any]:
    owner, name = _owner(each.target)
    original = vars(owner)[name]
    setattr(owner, name, each.make(original, here))
    return owner, name, original


def _owner(target: str) -> tuple[Any, str]:
    """The module or class, and the attribute: `trainers.saver.Saver.save` is `save` of `Saver`."""
    *path, name = target.split(".")
    classes = sum(part.lstrip("_")[:1].isupper() for part in path)  # modules are lower case here
    owner: Any = importlib.import_module(".".join(path[: len(path) - classes]))
    for attribute in path[len(path) - classes :]:
        owner = getattr(owner, attribute)
    return owner, name
