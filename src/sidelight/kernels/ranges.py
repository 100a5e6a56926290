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


@kernel
def first_outside(X, rewards, low, high):  # type: ignore[no-untyped-def]
    """The first row of which a value or a reward is not within ``low`` and ``high``; ``n`` if there is none.

    X: (n, d)   rewards: (n, K)   low, high: (d + 1,), the rewards' last
    """
    n, d = X.shape
    for t in range(n):
        for i in range(d):
            if not low[i] <= X[t, i] <= high[i]:
                return t
        for k in range(rewards.shape[1]):
            if not low[d] <= rewards[t, k] <= high[d]:
                return t
    return n
