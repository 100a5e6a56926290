"""What JSON Schema cannot say and a fuzzer must know: probabilities sum to 1, and those of a told arm are not 0.

Loaded by Schemathesis.
"""

from __future__ import annotations

import math
from typing import Any

import schemathesis


@schemathesis.hook
def before_call(context: Any, case: Any, kwargs: Any) -> None:
    """Make probabilities that are each fine sum to 1 and fit a told arm; whatever is wrong otherwise stays wrong."""
    _normalise(case.body)


def _normalise(value: Any) -> None:
    if isinstance(value, dict):
        found = value.get("probabilities")
        if isinstance(found, list) and found and all(type(p) in (int, float) and 0 <= p <= 1 for p in found):
            if "arm" in value:
                # which of them is the told arm's depends on the service: none is 0
                found = [max(p, 1e-3) for p in found]
            total = math.fsum(found)
            value["probabilities"] = [p / total for p in found] if total > 1e-9 else [1.0] + [0.0] * (len(found) - 1)
        for inner in value.values():
            _normalise(inner)
    elif isinstance(value, list):
        for inner in value:
            _normalise(inner)
