"""An experiment: what is trained and which faults strike it; read from YAML, checked before anything starts.

Pure but for reading the file. Errors name file, line and field.
"""

from __future__ import annotations

import difflib
import hashlib
import os
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from importlib import resources
from pathlib import Path
from typing import Any

from pydantic import BaseModel, ValidationError

from chaos.damage import Damage, DamageHow
from chaos.errors import ExperimentError, Problem, UnknownPoint
from chaos.faults import DEFAULT_GRACE_S, Fault, FaultKind, Gate, Outage, Slow
from chaos.marked_yaml import Loc, Marked, dotted, parse
from chaos.points import Role
from chaos.rules import findings
from chaos.schema import (
    AtSettings,
    DamageSettings,
    ExperimentSettings,
    FaultSettings,
    GateSettings,
    OutageSettings,
    RunSettings,
    SlowSettings,
)
from storage.sealed import canonical

DEFAULT_NAME = "default.yaml"


@dataclass(frozen=True)
class Experiment:
    """A checked experiment. `faults` have their random times drawn; `text` is the file, verbatim."""

    path: Path | None  # None: the default experiment
    text: str
    settings: ExperimentSettings
    faults: tuple[Fault, ...]

    @property
    def source(self) -> str:
        """The file's name in errors."""
        return DEFAULT_NAME if self.path is None else str(self.path)

    @property
    def run(self) -> RunSettings:
        """What is trained."""
        return self.settings.run

    @property
    def config_digest(self) -> str:
        """sha256 of everything in the experiment, with its defaults and the seed in force."""
        return _digest(self.settings.model_dump(mode="json"))

    @property
    def threads_per_rank(self) -> int:
        """Computing threads of a rank; `auto` leaves one core of this machine to savers and pipeline."""
        if self.run.threads_per_rank != "auto":
            return self.run.threads_per_rank
        return max(1, (len(os.sched_getaffinity(0)) - 1) // self.run.ranks)

    @property
    def training_digest(self) -> str:
        """sha256 of what determines the numbers: a checkpoint of another one is never restored."""
        run = self.run
        return _digest(
            {
                "workload": run.workload,
                "config": run.config,
                "seed": run.seed,
                "ranks": run.ranks,
                "global_batch": run.global_batch,
                "microbatches": run.microbatches,
                "steps": run.steps,
                "threads_per_rank": self.threads_per_rank,
                "precision": run.precision,
                "non_finite": run.non_finite,
                "keep_best": run.keep_best,
            }
        )

    @property
    def gate_deadline_s(self) -> float:
        """How long a gate is held or waited for: less than what makes the supervisor take it for a hang."""
        return 0.8 * self.run.hang_deadline_s

    def without_faults(self) -> Experiment:
        """The same training, undisturbed."""
        settings = self.settings.model_copy(update={"faults": []})
        return Experiment(self.path, self.text, settings, ())


def default_text() -> str:
    """The default experiment, as it is packaged."""
    return (resources.files("chaos") / "experiments" / DEFAULT_NAME).read_text("utf-8")


def packaged_experiment(name: str) -> Experiment:
    """One of those that come with the program."""
    return parse_experiment((resources.files("chaos") / "experiments" / name).read_text("utf-8"))


def load_experiment(path: Path | None, *, seed: int | None = None) -> Experiment:
    """Reads and checks an experiment file, or the default one for None. Raises ExperimentError.

    `seed` takes the place of the file's own.
    """
    if path is None:
        return parse_experiment(default_text(), seed=seed)
    try:
        text = path.read_text("utf-8")
    except (OSError, UnicodeDecodeError) as error:
        what = error.strerror if isinstance(error, OSError) else "is not UTF-8 text"
        raise ExperimentError(Problem(str(path), 0, "", f"cannot be read: {what}")) from error
    return parse_experiment(text, path, seed=seed)


def parse_experiment(text: str, path: Path | None = None, *, seed: int | None = None) -> Experiment:
    """Checks the text of an experiment file; `path` is its name in errors. Raises ExperimentError."""
    source = DEFAULT_NAME if path is None else str(path)
    marked = parse(text, source)
    if not isinstance(marked.value, dict):
        raise ExperimentError(Problem(source, 1, "", "is not a mapping; it needs `run: {workload: …}`"))
    if seed is not None and isinstance(marked.value.get("run"), dict):
        marked.value["run"]["seed"] = seed
    try:
        settings = ExperimentSettings.model_validate(marked.value)
    except ValidationError as error:
        raise ExperimentError(*_problems(error, marked, source)) from None
    found = list(findings(settings))
    if found:
        kind = UnknownPoint if all(finding.unknown_point for finding in found) else ExperimentError
        raise kind(*(Problem(source, marked.line(f.loc), dotted(f.loc), f.what) for f in found))
    seed = settings.run.seed
    faults = tuple(_fault(f"f{index}", fault, seed) for index, fault in enumerate(settings.faults))
    return Experiment(path, text, settings, faults)


def line_of(experiment: Experiment, loc: Loc) -> int:
    """The line of the experiment's file on which the field stands."""
    return parse(experiment.text, experiment.source).line(loc)


def _digest(value: Mapping[str, Any]) -> str:
    return f"sha256:{hashlib.sha256(canonical(value)).hexdigest()}"


def _fault(name: str, fault: FaultSettings, seed: int) -> Fault:
    at = fault.at
    after_s = at.after_s
    if at.random_s is not None:
        after_s = at.random_s[0] + (at.random_s[1] - at.random_s[0]) * _uniform(seed, name)
    gate = None
    if fault.gate is not None:
        gate = Gate(Role(fault.gate.role), fault.gate.rank, fault.gate.point, fault.gate.hit)
    hit = (at.hit or 1) if at.point is not None else None
    kind, role, damage = FaultKind(fault.kind), Role(at.role), None
    if fault.damage is not None:
        damage = Damage(fault.damage.file, fault.damage.rank, DamageHow(fault.damage.how))
    grace_s = fault.grace_s or DEFAULT_GRACE_S if kind is FaultKind.SIGTERM else None
    slow = None if fault.slow is None else Slow(fault.slow.delay_s, fault.slow.passages)
    outage = None if fault.outage is None else Outage(fault.outage.operations, fault.outage.for_s)
    return Fault(
        name, kind, at.attempt, role, at.rank, at.point, hit, after_s, gate, damage, grace_s, slow, outage
    )


def _uniform(seed: int, name: str) -> float:
    """A number in [0, 1) that depends on nothing but the seed and the fault's id."""
    drawn = hashlib.sha256(canonical(["killpoint.random_s/1", seed, name])).digest()
    return int.from_bytes(drawn[:6], "big") / 2**48  # 48 bits: exact in a float


def _problems(error: ValidationError, marked: Marked, source: str) -> Iterator[Problem]:
    found: dict[Loc, Problem] = {}  # one for each place: a union has an error for each of its members
    for detail in error.errors(include_url=False, include_context=True):
        loc = tuple(part for part in detail["loc"] if not _is_branch(part))
        what = _what(detail["type"], loc, detail["msg"], detail["input"])
        if loc[:2] == ("run", "config") and len(loc) == 3:
            what = f"must be a number, a string, a boolean or null, not {detail['input']!r}"
        found.setdefault(loc, Problem(source, marked.line(loc), dotted(loc), what))
    yield from found.values()


def _is_branch(part: str | int) -> bool:
    """Whether pydantic added this part of a location to name a member of a union."""
    return isinstance(part, str) and ("[" in part or "(" in part or part in ("int", "float", "bool", "str"))


def _what(kind: str, loc: Loc, message: str, given: object) -> str:
    if kind == "extra_forbidden":
        known = sorted(_model_at(loc[:-1]).model_fields)
        near = difflib.get_close_matches(str(loc[-1]), known, n=1)
        return f"unknown field; {f'did you mean {near[0]}?' if near else 'known are ' + ', '.join(known)}"
    if kind == "missing":
        return "is missing"
    if kind in ("model_type", "dict_type"):
        return f"must be a mapping, not {given!r}"
    return f"{message[0].lower()}{message[1:]}, not {given!r}"


def _model_at(loc: Loc) -> type[BaseModel]:
    if loc[:1] == ("run",):
        return RunSettings
    if loc[:1] != ("faults",):
        return ExperimentSettings
    below: dict[Loc, type[BaseModel]] = {
        ("at",): AtSettings, ("gate",): GateSettings, ("damage",): DamageSettings, ("slow",): SlowSettings,
        ("outage",): OutageSettings,
    }  # fmt: skip
    return below.get(loc[2:3], FaultSettings)
