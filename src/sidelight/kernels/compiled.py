"""How the package is compiled: entries that Python calls, and helpers that become part of them.

``@kernel`` marks an entry.  It is compiled at its first call, without the interpreter's lock and without fastmath, and
kept on disk.  Numba itself would look at the entry's own file to see whether the compiled code is still good; here the
key covers the source of the whole package, so that an edit of a helper is noticed too.

``@helper`` marks a function that kernels call.  It is compiled into each of them and has no compiled form of its own.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable
from pathlib import Path
from typing import Any

from numba import njit
from numba.core.caching import FunctionCache
from numba.extending import register_jitable

__all__ = ["helper", "kernel", "source_digest"]


def source_digest(folder: Path = Path(__file__).parent) -> str:
    """A digest of all source files of the package."""
    content = hashlib.sha256()
    for path in sorted(folder.glob("*.py")):
        content.update(path.name.encode() + b"\0" + path.read_bytes() + b"\0")
    return content.hexdigest()


_DIGEST = source_digest()


class _PackageCache(FunctionCache):
    """Numba's cache of one function, under a key that covers the package's source."""

    def _index_key(self, sig: Any, codegen: Any) -> tuple[Any, ...]:
        return (*super()._index_key(sig, codegen), _DIGEST)  # type: ignore[no-untyped-call]


def kernel(function: Callable[..., Any]) -> Any:
    """An entry: compiled at its first call for the types it is given, and kept on disk."""
    dispatcher: Any = njit(nogil=True, error_model="numpy")(function)
    dispatcher._cache = _PackageCache(function)  # type: ignore[no-untyped-call]
    return dispatcher


def helper(function: Callable[..., Any]) -> Any:
    """Part of every kernel that calls it; from Python it is the plain function."""
    return register_jitable(error_model="numpy")(function)


def inlined(function: Callable[..., Any]) -> Any:
    """A helper whose arguments are too many to be handed over: it is written out where it is called."""
    return register_jitable(error_model="numpy", forceinline=True)(function)
