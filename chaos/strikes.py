"""What a fault does to the process that strikes itself, once its receipt is durable.

A kill, a stop and an exception end here. A SIGTERM is a notice: this process goes on for as long as its grace lasts.
"""

from __future__ import annotations

import os
import signal
import threading
from collections.abc import Mapping

from chaos.faults import Fault, FaultKind, InjectedFault, Passage

SIGNALS: Mapping[FaultKind, signal.Signals] = {
    FaultKind.SIGKILL: signal.SIGKILL,
    FaultKind.HANG: signal.SIGSTOP,  # stops every thread, so that nothing runs on
    FaultKind.SIGTERM: signal.SIGTERM,
}


def strike(fault: Fault, passage: Passage) -> None:
    """Returns after a notice only. Raises InjectedFault for an exception."""
    if fault.kind is FaultKind.EXCEPTION:
        raise InjectedFault(fault.id, str(passage))
    if fault.grace_s is not None:
        _end_after(fault.grace_s)
    # To this thread, not to the process: then this thread is sure not to run on before a stop takes hold, and to find
    # the notice wherever it looks next.
    signal.pthread_kill(threading.get_ident(), SIGNALS[fault.kind])


def _end_after(grace_s: float) -> None:
    """As whoever takes a machine away does: what is not gone by then is killed."""
    timer = threading.Timer(grace_s, os.kill, (os.getpid(), signal.SIGKILL))
    timer.daemon = True
    timer.start()
