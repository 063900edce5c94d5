"""What the auditor frees stays with its process."""

from __future__ import annotations

import subprocess
import sys

_PROGRAM = """
import resource, sys
import numpy as np
from chaos.audit.heap import keep_freed
if sys.argv[1] == "kept":
    keep_freed()
def windows(number):
    for _ in range(number):
        held = [np.ones(1 << 16) for _ in range(8)]  # 512 KiB each
        del held
windows(3)
before = resource.getrusage(resource.RUSAGE_SELF).ru_minflt
windows(20)
print(resource.getrusage(resource.RUSAGE_SELF).ru_minflt - before)
"""


def faults(how: str) -> int:
    done = subprocess.run([sys.executable, "-c", _PROGRAM, how], capture_output=True, text=True, check=True)
    return int(done.stdout)


def test_freed_memory_is_not_asked_for_anew() -> None:
    pages = 20 * 8 * (1 << 19) // 4096
    assert faults("given back") > pages // 4
    assert faults("kept") < pages // 100
