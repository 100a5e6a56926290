"""Threads that look at something while it is changed."""

from __future__ import annotations

import sys
import threading
from collections.abc import Callable, Hashable


def seen_during(change: Callable[[], object], look: Callable[[int], Hashable], threads: int = 3) -> list[set[Hashable]]:
    """What is seen by threads, each of which calls ``look`` with its number over and over until ``change()`` is done.

    What there was before is among it.  The interpreter switches between them as often as it can.

    Raises:
        Exception: what one of them raised.
    """
    seen = [{look(i)} for i in range(threads)]
    errors: list[Exception] = []
    stop = threading.Event()

    def run(i: int) -> None:
        try:
            while not stop.is_set():
                seen[i].add(look(i))
        except Exception as error:
            errors.append(error)

    readers = [threading.Thread(target=run, args=(i,)) for i in range(threads)]
    switching = sys.getswitchinterval()
    sys.setswitchinterval(1e-6)
    try:
        for thread in readers:
            thread.start()
        change()
    finally:
        stop.set()
        for thread in readers:
            thread.join()
        sys.setswitchinterval(switching)
    for error in errors:
        raise error
    return seen
