"""``python -m benchmarks [name …]``: timings. Run ``main()`` of each benchmark in this folder, or of those named."""

from __future__ import annotations

import sys
from importlib import import_module
from pkgutil import iter_modules

import benchmarks

#: long statistical studies, each a command of its own: ``python -m benchmarks.NAME``
STUDIES = ("__main__", "evidence", "misses", "regret", "zoo")


def names() -> list[str]:
    """The modules of this folder that have a ``main``: each prints ratios measured in one run."""
    found = [module.name for module in iter_modules(benchmarks.__path__) if module.name not in STUDIES]
    return [name for name in sorted(found) if hasattr(import_module(f"benchmarks.{name}"), "main")]


def main(wanted: list[str]) -> int:
    known = names()
    unknown = sorted(set(wanted) - set(known))
    if unknown:
        print(f"No benchmark called {', '.join(unknown)}; there are {', '.join(known)}.", file=sys.stderr)
        return 2
    for name in wanted or known:
        print(f"== {name}", flush=True)
        sys.argv = [f"benchmarks.{name}"]  # a benchmark with options of its own runs with their defaults
        import_module(f"benchmarks.{name}").main()
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
