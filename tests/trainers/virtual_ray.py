"""Ray's calls without Ray, in virtual time: nothing sleeps, and an answer comes exactly when the test says.

`VirtualRay` stands in for the modules `ray` and `time` where they wait. It keeps to Ray's rules where they matter:
`wait` returns at most `num_returns` references, `get` raises what Ray raises.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Any

from ray.exceptions import ActorDiedError, GetTimeoutError, RayTaskError

NEVER = math.inf


class Ref:
    """An object reference: from the virtual time `at` on it has a value, or an error to raise."""

    def __init__(self, at: float = NEVER, outcome: Any = None) -> None:
        self.at, self.outcome = at, outcome


def raised(cause: Exception) -> RayTaskError:
    """What `ray.get` raises for a call that raised `cause`."""
    error = RayTaskError("method", "Traceback", cause, proctitle="worker", pid=1, ip="127.0.0.1")
    both: RayTaskError = error.as_instanceof_cause()
    return both


class VirtualRay:
    """`ray.wait`, `ray.get`, `time.monotonic` and `time.sleep` on one virtual clock."""

    def __init__(self) -> None:
        self.now = 0.0

    def monotonic(self) -> float:
        return self.now

    def sleep(self, seconds: float) -> None:
        self.now += seconds

    def wait(
        self, refs: Sequence[Ref], *, num_returns: int = 1, timeout: float | None = None
    ) -> tuple[list[Ref], list[Ref]]:
        ready = sorted(ref.at for ref in refs)[min(num_returns, len(refs)) - 1]
        until = min(ready, self.now + (NEVER if timeout is None else timeout))
        assert until < NEVER, "waits for ever"
        self.now = max(self.now, until)
        done = [ref for ref in refs if ref.at <= self.now][:num_returns]
        return done, [ref for ref in refs if ref not in done]

    def get(self, ref: Ref, timeout: float | None = None) -> Any:
        if not self.wait([ref], timeout=timeout)[0]:
            raise GetTimeoutError("not ready")
        if isinstance(ref.outcome, Exception):
            raise ref.outcome
        return ref.outcome


class Died(BaseException):
    """Raised by a test in the middle of a call: the actor is gone, as by SIGKILL. No `except Exception` sees it."""


class LocalActor:
    """An actor handle around an object of this process. A call is made at once, so its reference is ready."""

    def __init__(self, ray: VirtualRay, instance: Any) -> None:
        self.instance = instance
        self.hold_ref = Ref()
        self._ray = ray

    def __getattr__(self, method: str) -> Any:
        return _Method(lambda *args: self._call(method, args))

    def _call(self, method: str, args: tuple[Any, ...]) -> Ref:
        try:
            return Ref(self._ray.now, getattr(self.instance, method)(*args))
        except Died:
            self.hold_ref.at, self.hold_ref.outcome = self._ray.now, ActorDiedError()
            return Ref(self._ray.now, ActorDiedError())
        except Exception as error:
            return Ref(self._ray.now, raised(error))


class _Method:
    def __init__(self, call: Callable[..., Ref]) -> None:
        self.remote = call
