"""How long a call takes, for the cells that measure."""

import time
from collections.abc import Callable


def fastest_seconds(function: Callable, *args, runs: int = 20) -> float:
    """Seconds of the fastest of several calls: other programs on the machine can only add to a time.

    >>> fastest_seconds(sum, [1, 2, 3]) < 1.0
    True
    """
    seconds = []
    for _ in range(runs):
        start = time.perf_counter()
        function(*args)
        seconds.append(time.perf_counter() - start)
    return min(seconds)
