"""Whether values lie within ranges, for every observation of a learner."""

from __future__ import annotations

from sidelight.kernels.compiled import kernel


@kernel
def within(x, reward, low, high):  # type: ignore[no-untyped-def]
    """Whether all of ``x`` (d,) and ``reward`` lie within ``low`` and ``high`` (d + 1,), the reward's last."""
    d = x.shape[0]
    for i in range(d):
        if not low[i] <= x[i] <= high[i]:
            return False
    return low[d] <= reward <= high[d]
