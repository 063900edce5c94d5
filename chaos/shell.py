"""What every command shares: its options' types, how a failure ends it, and what goes to which stream."""

from __future__ import annotations

import json
import sys
import traceback
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import UTC, datetime
from pathlib import Path
from typing import Annotated

import typer

from chaos.printable import printable

EXIT_UNJUDGED = 2

JsonOption = Annotated[bool, typer.Option("--json", help="print JSON and nothing else on standard output")]
QuietOption = Annotated[bool, typer.Option("--quiet", help="show no progress")]

PointOption = Annotated[
    list[str] | None, typer.Option("--point", metavar="POINT", help="only kills at this point; repeatable")
]
JobsOption = Annotated[
    int, typer.Option("--jobs", min=1, help="so many trials at a time, side by side on one Ray")
]
DeadlineOption = Annotated[
    float, typer.Option("--deadline-s", min=1.0, help="a trial that takes longer is `unfinished`")
]


def new_folder(output: Path | None, kind: str) -> Path:
    """Where a command puts what it makes, if nothing else was asked for: below `runs`, by the time and its kind."""
    return (output or Path("runs") / f"{datetime.now(UTC):%Y%m%dT%H%M%SZ}-{kind}").resolve()


def print_json(value: object) -> None:
    """On standard output; keys sorted."""
    print(json.dumps(value, indent=1, sort_keys=True))


def complain(text: str) -> None:
    """On standard error, under the command's name."""
    for line in text.splitlines():
        print(f"killpoint: {printable(line)}", file=sys.stderr)


@contextmanager
def interrupted_with(hint: str) -> Iterator[None]:
    """Within `errors_reported`: after an interrupt it says this too, where what was done lies, and how to go on."""
    try:
        yield
    except KeyboardInterrupt:
        raise KeyboardInterrupt(f"interrupted; {hint}") from None


@contextmanager
def errors_reported() -> Iterator[None]:
    """Every failure ends with status 2: 1 says that a run was judged invalid, and Python's default is 1."""
    from chaos.errors import ChaosError
    from storage.errors import StorageError
    from trainers.errors import TrainingError

    try:
        yield
    except (ChaosError, StorageError, TrainingError) as error:
        complain(str(error))
    except OSError as error:
        complain(f"{error.filename or 'input or output'}: {error.strerror or error}")
    except KeyboardInterrupt as error:
        complain(str(error) or "interrupted")
    except (typer.Exit, typer.BadParameter):
        raise
    except Exception:
        traceback.print_exc()
        complain("this is a defect of killpoint, not a verdict")
    else:
        return
    raise typer.Exit(EXIT_UNJUDGED)
