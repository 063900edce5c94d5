"""The record of the last good check of an experiment: what its code was, and how long its trials took.

It lies below $XDG_CACHE_HOME/killpoint/checks, one file an experiment: a repository is not changed by being checked,
and where the cache is not kept nothing is lost but the order of the trials after the first stage.
"""

from __future__ import annotations

import hashlib
import json
import os
from collections.abc import Iterable, Mapping
from dataclasses import asdict, dataclass
from fnmatch import fnmatch
from pathlib import Path

from chaos.check.order import GROUPS
from chaos.experiment import Experiment
from storage.sealed import canonical

FORMAT = "killpoint.check/1"
_ROOT = Path(__file__).resolve().parent.parent.parent
_OWN = ("storage", "trainers")  # what runs in the code under test; of chaos only the hook does
# Which groups of points a source bears on: where its code runs. What of Killpoint is in no row bears on all.
_BEARS = (
    ("trainers/committer.py", ("commit", "log")),
    ("storage/manifest.py", ("commit", "recovery")),
    ("storage/log.py", ("log", "commit", "supervision")),
    ("storage/retention.py", ("retire",)),
    ("storage/ledger.py", ("save", "commit")),
    ("storage/shard.py", ("save", "recovery")),
    ("storage/selection.py", ("recovery", "supervision")),
    ("trainers/sav*.py", ("save",)),
    ("trainers/staging.py", ("save",)),
    ("trainers/state.py", ("save", "recovery")),
    ("trainers/parts.py", ("save", "recovery")),
    ("trainers/choosing.py", ("recovery", "supervision")),
    ("trainers/supervis*.py", ("recovery", "supervision")),
    ("trainers/pipeline.py", ("data", "recovery")),
    ("trainers/source.py", ("data", "recovery")),
    ("trainers/plan*.py", ("data", "recovery")),
    ("trainers/update.py", ("step",)),
    ("trainers/accumulation.py", ("step",)),
    ("trainers/reducer.py", ("step",)),
    ("trainers/warming.py", ("standby",)),
)  # fmt: skip
_OF_WORKLOADS = ("user", "step", "recovery")  # a save copies whatever state there is


@dataclass(frozen=True)
class LastGood:
    """files: source → sha256. median_s: of the trials of each kind."""

    files: Mapping[str, str]
    median_s: Mapping[str, float]


def place_of(experiment: Experiment) -> Path:
    """Where the record of this experiment is, whether there is one or not."""
    base = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "killpoint" / "checks"
    what = [FORMAT, str(experiment.path and experiment.path.resolve()), experiment.config_digest]
    return base / f"{hashlib.sha256(canonical(what)).hexdigest()[:32]}.json"


def read(place: Path) -> LastGood | None:
    """None if there is no record, or none that can be read: it is a hint, no evidence."""
    try:
        value = json.loads(place.read_text("utf-8"))
        if value.pop("format") != FORMAT:
            return None
        files = {str(name): str(digest) for name, digest in value["files"].items()}
        return LastGood(files, {str(kind): float(seconds) for kind, seconds in value["median_s"].items()})
    except (OSError, ValueError, KeyError, AttributeError, TypeError):
        return None


def write(place: Path, good: LastGood) -> None:
    """Replaces the record."""
    place.parent.mkdir(parents=True, exist_ok=True)
    draft = place.with_suffix(f".{os.getpid()}.tmp")
    draft.write_text(json.dumps({"format": FORMAT, **asdict(good)}, indent=1, sort_keys=True), encoding="utf-8")
    os.replace(draft, place)


def source_digests(workload_files: Iterable[str]) -> dict[str, str]:
    """Name → sha256: Killpoint's own sources by their name in it, the workload's by their path."""
    own = {str(p.relative_to(_ROOT)): p for package in _OWN for p in sorted((_ROOT / package).rglob("*.py"))}
    theirs = {file: Path(file) for file in workload_files if not Path(file).is_relative_to(_ROOT)}
    return {name: hashlib.sha256(path.read_bytes()).hexdigest() for name, path in (own | theirs).items()}


def changed_files(before: Mapping[str, str], now: Mapping[str, str]) -> list[str]:
    """Sources that are new, gone or different."""
    return sorted(name for name in before.keys() | now.keys() if before.get(name) != now.get(name))


def groups_of(files: Iterable[str]) -> frozenset[str]:
    """The groups of kill points that these sources bear on."""
    return frozenset(group for file in files for group in _groups(file))


def _groups(file: str) -> tuple[str, ...]:
    if os.path.isabs(file):
        return _OF_WORKLOADS
    return next((groups for pattern, groups in _BEARS if fnmatch(file, pattern)), GROUPS)
