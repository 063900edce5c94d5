"""What a planted bug is: a defect in a few lines, a run in which it bites, one in which it cannot, what must be said.

The bugs themselves are no part of the program: they lie in a folder of files that each define BUGS, `tests/planted` of
a checkout, which is loaded by path in the processes that a defect is planted in, and nowhere else.
"""

from __future__ import annotations

import hashlib
import importlib.util
import sys
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from functools import cache
from pathlib import Path
from typing import Any

from chaos.errors import GalleryError

WORKER: frozenset[str] = frozenset({"rank", "standby"})
COMMITTER: frozenset[str] = frozenset({"committer"})
SUPERVISOR: frozenset[str] = frozenset({"supervisor"})
ORACLE = 0  # stands where an invariant's number does for the accumulation check (`chaos.oracle`)
EVERYWHERE = WORKER | COMMITTER | SUPERVISOR


@dataclass
class Here:
    """The process that a defect is planted in, as its kill points were told. notes: the defect's own, for one run.

    twin: whether the run is the twin, in which nothing dies.
    """

    folder: Path
    twin: bool = False
    attempt: int = 0
    rank: int | None = None
    notes: dict[str, Any] = field(default_factory=dict)


@dataclass(frozen=True)
class Replacement:
    """`make(original, here)` takes the place of what `target` names, in processes of these roles."""

    target: str
    make: Callable[[Any, Here], Any]
    roles: frozenset[str] = WORKER


@dataclass(frozen=True)
class Case:
    """One run. run: settings beside `TINY`. also: what happens in it beside the defect, a slow disk for example.

    watch: makes what is told each event of the run. after: done to the run's folder before it is judged.
    rivals: how many supervisors resume the run at once after its own was killed. oracle: the accumulation check judges
    it too, beside the auditor.
    """

    faults: tuple[Mapping[str, Any], ...] = ()
    run: Mapping[str, Any] = field(default_factory=dict)
    also: tuple[Replacement, ...] = ()
    watch: Callable[[], Callable[[Any], None]] | None = None
    after: Callable[[Path], None] | None = None
    rivals: int = 0
    oracle: bool = False


@dataclass(frozen=True)
class Bug:
    """One row of the gallery, or one of its variants.

    named: invariant → regular expression that its witness must match. may: invariants that the defect breaks besides.
    unseen: regular expression of what the verdict of the latent control must list.
    """

    number: int
    title: str
    defect: tuple[Replacement, ...]
    plant: Case
    control: Case
    named: Mapping[int, str]
    unseen: str
    seen_in: str = ""
    variant: str = ""
    may: frozenset[int] = frozenset()
    verdict: str = "invalid"

    @property
    def key(self) -> str:
        """`3-torch`, `4`."""
        return f"{self.number}-{self.variant}" if self.variant else str(self.number)


TINY: Mapping[str, Any] = {
    "workload": "tiny", "seed": 3, "ranks": 2, "global_batch": 16, "microbatches": 2, "steps": 12, "save_every": 3,
    "keep": 3, "standbys": 1,
}  # fmt: skip


def load_bugs(folder: Path) -> dict[str, Bug]:
    """Every bug of the folder by its key, in order of number. Raises GalleryError."""
    return dict(_loaded(folder.resolve()))


@cache
def _loaded(folder: Path) -> Mapping[str, Bug]:
    found: dict[str, Bug] = {}
    for path in sorted(folder.glob("*.py")):
        if path.name.startswith("test_"):
            continue
        for bug in _import(path):
            if bug.key in found:
                raise GalleryError(f"{path}: there is a bug {bug.key} already")
            found[bug.key] = bug
    if not found:
        raise GalleryError(f"{folder}: no file here defines BUGS; name the folder of the planted bugs with --bugs")
    return dict(sorted(found.items(), key=lambda item: (item[1].number, item[0])))


def _import(path: Path) -> tuple[Bug, ...]:
    name = f"killpoint_bugs_{hashlib.sha256(str(path).encode()).hexdigest()[:12]}"
    spec = importlib.util.spec_from_file_location(name, path)
    if spec is None or spec.loader is None:
        raise GalleryError(f"{path}: cannot be imported")
    if str(path.parent) not in sys.path:
        sys.path.append(str(path.parent))  # the files share helpers
    module = importlib.util.module_from_spec(spec)
    sys.modules[name] = module
    spec.loader.exec_module(module)
    return tuple(getattr(module, "BUGS", ()))
