"""Where the labels of lines go when the lines end close together."""

from __future__ import annotations

from collections.abc import Sequence

__all__ = ["places"]


def places(wanted: Sequence[float], gap: float, low: float, high: float) -> list[float]:
    """Positions at least ``gap`` apart, within ``low`` and ``high``, with the least squared distances from ``wanted``.

    Labels keep the order of ``wanted``, which ascends. With ``p_i = q_i + i·gap`` this is isotonic regression of
    ``wanted_i − i·gap``, by pooling neighbours that would stand in the wrong order; clipping it to the frame keeps it
    optimal. Where the labels do not all fit, they start at ``low``.

    Args:
        wanted: where each label would stand alone, ascending.
        gap: the height of a label.
        low: the lowest position.
        high: the highest position.
    """
    pools: list[list[float]] = []  # sum and number of the pooled values
    for i, value in enumerate(wanted):
        pools.append([value - i * gap, 1.0])
        while len(pools) > 1 and pools[-2][0] * pools[-1][1] >= pools[-1][0] * pools[-2][1]:
            total, number = pools.pop()
            pools[-1][0] += total
            pools[-1][1] += number
    highest = max(low, high - gap * (len(wanted) - 1))
    levels = [min(max(total / number, low), highest) for total, number in pools for _ in range(int(number))]
    return [level + i * gap for i, level in enumerate(levels)]
