"""Commands that the program tells its user to type, quoted for the shell."""

from __future__ import annotations

import shlex
from pathlib import Path


def resume_command(folder: Path) -> str:
    """Goes on with the run."""
    return shlex.join(["killpoint", "run", "--resume", str(folder)])


def audit_command(folder: Path) -> str:
    """Judges the run."""
    return shlex.join(["killpoint", "audit", str(folder)])
