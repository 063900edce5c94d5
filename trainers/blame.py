"""What the code under test raised, told so that its owner finds it: type, message, file and line, step.

An exception of its own may not survive the way from process to process: its class may not be importable in the
supervisor, or not take its arguments back. So the rank's process puts it into words.
"""

from __future__ import annotations

import textwrap
import traceback
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

from trainers.errors import WorkloadRaised

_LONGEST = 500  # characters of a message

def described(error: BaseException) -> str:
    """`ValueError: no such column` in one line; the type alone where there is no message."""
    text = textwrap.shorten(str(error), _LONGEST, placeholder=" …")
    return f"{type(error).__name__}: {text}" if text else type(error).__name__


def place_of(error: BaseException, files: Sequence[Path]) -> str:
    """`workload.py:12`, the innermost frame in one of `files`; without one the innermost of all, by its full path."""
    frames = traceback.extract_tb(error.__traceback__)
    own = {str(file) for file in files}
    for frame in reversed(frames):
        if frame.filename in own or str(Path(frame.filename).resolve()) in own:
            return f"{Path(frame.filename).name}:{frame.lineno}"
    return f"{frames[-1].filename}:{frames[-1].lineno}" if frames else "no frame"


@contextmanager
def blamed(
    files: Callable[[], Sequence[Path]], step: Callable[[], int], own: tuple[type[Exception], ...]
) -> Iterator[None]:
    """What is raised in the block, unless it is one of `own`, becomes WorkloadRaised.

    `files`: the workload's sources. `step`: the number of updates done.
    """
    try:
        yield
    except own:
        raise
    except Exception as error:
        raise WorkloadRaised(described(error), place_of(error, files()), step() + 1, type(error).__name__) from error


def repeated(before: Sequence[BaseException | None], now: Sequence[BaseException | None]) -> WorkloadRaised | None:
    """The exception that ended two attempts in a row: same type, same place, same step. Messages may differ."""
    raised = {error.identity for error in before if isinstance(error, WorkloadRaised)}
    return next((error for error in now if isinstance(error, WorkloadRaised) and error.identity in raised), None)
