"""The worker's side of its launcher: which run this process serves, so that its end is recorded there.

Standard library only. Without a launcher nothing happens, and how this process ends is seen by nobody.
"""

from __future__ import annotations

import json
import os
import socket
import sys
from pathlib import Path

_WITNESS_ENV = "KILLPOINT_WITNESS"
_ANSWER_S = 10.0


def watched(folder: Path, run: str) -> None:
    """From now on the launcher keeps a history of this process in the folder. No more in that of another run."""
    _ask({"folder": str(folder), "run": run})


def released() -> None:
    """This process serves no run any more: how it ends is no run's affair."""
    _ask({})


def _ask(request: dict[str, str]) -> None:
    """A launcher that does not answer is no reason to stop: the verdict will be unknown."""
    name = os.environ.get(_WITNESS_ENV)
    if not name:
        return
    try:
        with socket.socket(socket.AF_UNIX) as connection:
            connection.settimeout(_ANSWER_S)
            connection.connect(f"\0{name}")
            connection.sendall(json.dumps(request).encode("ascii") + b"\n")
            if not connection.recv(1):
                raise ConnectionError("it has hung up, see its own complaint")
    except OSError as error:
        print(f"killpoint: the launcher does not watch process {os.getpid()}: {error}", file=sys.stderr)
