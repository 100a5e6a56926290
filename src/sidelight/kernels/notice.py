"""A notice on stderr, printed once per process when a kernel has to be compiled."""

from __future__ import annotations

import sys
from typing import Any

from numba.core import event

from sidelight.kernels.compiled import is_kernel

__all__ = ["Notice", "silence"]


class Notice(event.Listener):
    """Prints the notice at the first compilation of a kernel in a process.

    Nothing is printed when a kernel is loaded from the cache, or when a function of another package is compiled.
    """

    said = False

    def on_start(self, event: Any) -> None:
        """Numba calls this when a compilation starts: print the notice, once in a process."""
        if not Notice.said and is_kernel(event.data["dispatcher"]):
            Notice.said = True
            print(
                "Sidelight compiles its inner loops for this machine: some seconds, once. `sidelight warm` does it "
                "beforehand.",
                file=sys.stderr,
                flush=True,
            )

    def on_end(self, event: Any) -> None:
        """Numba calls this when a compilation ends: do nothing."""


def silence() -> None:
    """Suppress the notice, for commands that show their own progress."""
    Notice.said = True


event.register("numba:compile", Notice())  # type: ignore[no-untyped-call]
