"""A supervisor and an auditor without Ray, for tests of what surrounds them.

As a program, `python chaos_kit.py BEHAVIOUR ARGS…` is the `killpoint` command with these fakes in place.
"""

from __future__ import annotations

import os
import signal
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from types import ModuleType
from typing import Any

import chaos.life
from storage.errors import Fenced
from trainers.errors import GaveUp
from trainers.events import AttemptStarted, Chosen, DeathDetected, Finished, StepDone

ROOT = Path(__file__).resolve().parents[2]
CLOSED: list[str] = []
NOISE = "noise on standard output"


def watched(folder: Path) -> str:
    """What a worker does first: asks its launcher to keep a history in the folder. Python code in one line."""
    return (
        f"import sys; sys.path.append({str(ROOT)!r}); from pathlib import Path; "
        f"from trainers.witness import released, watched; watched(Path({str(folder)!r}), 'run'); "
    )


class FakeSupervisor:
    """Does what BEHAVIOUR says in place of training."""

    behaviour = "finish"
    early = False  # before the first attempt

    def __init__(
        self, spec: Any, *, points: Any, notify: Callable[[Any], None], history: Any, pool: Any, reuse: bool
    ) -> None:
        self.spec, self.points, self.notify, self.history = spec, points, notify, history
        assert pool.namespace.startswith("killpoint-")
        del reuse  # it has no processes to give back

    def run(self) -> None:
        print(NOISE)
        self.points.enter(0, "supervisor", None, self.history)
        if self.early:
            getattr(self, self.behaviour)()
        self.notify(AttemptStarted(0))
        self.notify(StepDone(0, 0, 1, 0.5))
        getattr(self, self.behaviour.replace("-", "_"))()
        self.history.record("finished", step=self.spec.steps)
        self.notify(Finished(self.spec.steps))

    def close(self) -> None:
        if self.behaviour.startswith("interrupted-twice"):
            os.kill(os.getpid(), signal.SIGINT)
        CLOSED.append(self.spec.run)

    def finish(self) -> None:
        self.notify(DeathDetected(0, "rank", 1, 4242, 99, "actor_died"))
        self.notify(Chosen(1, "s00000007-a0000", 7, (("s00000014-a0000", "a byte differs"),)))
        self.points("recover.formed")

    def give_up(self) -> None:
        raise GaveUp("attempt 8 died too: raise max_attempts")

    def fenced(self) -> None:
        raise GaveUp("another supervisor took over") from Fenced(3)

    def crash(self) -> None:
        raise ZeroDivisionError("a defect")

    def interrupted(self) -> None:
        os.kill(os.getpid(), signal.SIGTERM)
        time.sleep(60)

    interrupted_twice = interrupted

    def die(self) -> None:
        os.kill(os.getpid(), signal.SIGKILL)

    def wait(self) -> None:
        print("waiting", file=sys.stderr, flush=True)
        time.sleep(60)


class FakeVerdict:
    def __init__(self, folder: Path, verdict: str) -> None:
        self.folder, self.verdict = folder, verdict

    def to_json(self) -> dict[str, Any]:
        return verdict_json(self.verdict)


def verdict_json(verdict: str = "valid") -> dict[str, Any]:
    """A verdict with one of everything, in the contract's form."""
    receipt = {"target": {"pid": 4242, "start_ticks": 99, "host": "h"}, "gate": None}
    fault = {"attempt": 0, "role": "rank", "rank": 1, "point": "step.end", "hit": 4, "kind": "sigkill"}
    times = {"detect_s": 0.02, "reacquire_s": 0.1, "load_s": 0.005, "redo_s": 0.5, "first_step_s": 0.31}
    return {
        "verdict": verdict,
        "invariants": [
            {"id": 1, "name": "atomic", "verdict": "valid", "witness": ""},
            {"id": 5, "name": "same trajectory", "verdict": "not_judged", "witness": "no twin [was] run"},
        ],
        "unseen": ["the learning rate was constant: a lost scheduler is invisible here"],
        "faults": [
            {**fault, "receipt": receipt, "observed": {"pid": 4242, "signal": 9}},
            {**fault, "attempt": 1, "point": None, "hit": None, "receipt": None, "observed": None},
        ],
        "recoveries": [{"attempt": 1, "restored_step": 7, "redo_steps": 3, "redo_samples": 96, **times}],
        "seed": 7, "config_digest": "sha256:ab", "code_version": "0.1.0+cd",
        "reproduce": "killpoint run --seed 7",
    }  # fmt: skip


class NoForkServer:
    environment = {"KILLPOINT_FORKSERVER": "/nowhere"}  # noqa: RUF012

    def __enter__(self) -> NoForkServer:
        return self

    def __exit__(self, *_exc: object) -> None:
        return


@contextmanager
def _no_cluster(*_args: object) -> Iterator[None]:
    yield


def install(behaviour: str = "finish", verdict: str = "valid", early: bool = False) -> None:
    """Puts the fakes in place, for this process."""
    supervisor, audit = ModuleType("trainers.supervisor"), ModuleType("chaos.audit")
    vars(supervisor)["Supervisor"] = type("Supervisor", (FakeSupervisor,), {"behaviour": behaviour, "early": early})
    vars(audit)["audit_run"] = lambda folder, dataset=None: FakeVerdict(folder, verdict)
    sys.modules["trainers.supervisor"], sys.modules["chaos.audit"] = supervisor, audit
    chaos.life.ray_cluster = _no_cluster  # type: ignore[assignment]
    vars(chaos.life)["ForkServer"] = NoForkServer


@contextmanager
def uninstalled() -> Iterator[None]:
    """Whatever is put in place in the block is gone after it."""
    names, cluster = ("trainers.supervisor", "chaos.audit"), chaos.life.ray_cluster
    before = {name: sys.modules[name] for name in names if name in sys.modules}
    fork_server = vars(chaos.life)["ForkServer"]
    CLOSED.clear()
    try:
        yield
    finally:
        chaos.life.ray_cluster, vars(chaos.life)["ForkServer"] = cluster, fork_server
        for name in names:
            sys.modules.pop(name, None)
        sys.modules.update(before)


if __name__ == "__main__":
    from chaos.cli import main

    install(sys.argv[1])
    sys.argv[1:] = sys.argv[2:]
    main()
