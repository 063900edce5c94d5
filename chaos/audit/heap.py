"""How the C library's allocator treats what the auditor's arrays free."""

from __future__ import annotations

import numpy as np

_KEPT_BYTES = 1 << 24


def keep_freed() -> None:
    """Has freed memory of up to twice 16 MiB kept for what comes next, instead of given back at once.

    Windows of rows need arrays of the same sizes again and again. glibc maps blocks of over 128 KiB anew each time,
    until one is freed: from then on those of its size come from the heap, of which twice that may lie free
    (mallopt(3), M_MMAP_THRESHOLD). Nothing of this one is touched, so it costs nothing. It holds for the whole process
    and for good.
    """
    np.empty(_KEPT_BYTES, np.uint8)
