"""Natural cubic splines: where the knots are, and basis curves without a linear part."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from sidelight.errors import SchemaError

__all__ = ["Bends", "spline_knots"]

# Number of knots → quantiles at which they lie, after Harrell, Regression Modeling Strategies.
_QUANTILES: dict[int, tuple[float, ...]] = {
    3: (0.1, 0.5, 0.9),
    4: (0.05, 0.35, 0.65, 0.95),
    5: (0.05, 0.275, 0.5, 0.725, 0.95),
    6: (0.05, 0.23, 0.41, 0.59, 0.77, 0.95),
}
# Rows computed at a time: so few that the intermediate arrays stay in a core's cache.
_BLOCK = 2_048


def spline_knots(column: str, df: int, sample: np.ndarray) -> tuple[float, ...]:
    """``df + 1`` knots at quantiles of a sample in increasing order; where those coincide, of its distinct values.

    Raises:
        SchemaError: the sample has too few distinct values.
    """
    n = df + 1
    quantiles = _QUANTILES.get(n) or tuple(np.linspace(0.025, 0.975, n).tolist())
    for values in (sample, np.unique(sample)):
        knots = [float(values[round(q * (len(values) - 1))]) for q in quantiles]
        if len(set(knots)) == n:
            return tuple(knots)
    raise SchemaError(
        f"column {column!r} has {len(np.unique(sample))} different values, too few for the {n} knots of "
        f"spline({column}, {df}): take fewer columns, or make it a category."
    )


@dataclass(frozen=True)
class Bends:
    """Curves ``c₀ + c₁t + Σ g_j (min(t, 1) − u_j)₊³ + s (t − 1)₊`` of ``t``, the number scaled to the outer knots.

    Attributes:
        knots: K knots; ``u_j`` are the same, scaled to 0 … 1.
        coefficients: for each of the K−2 curves ``c₀, c₁, g_1 … g_{K−1}, s``.
    """

    knots: tuple[float, ...]
    coefficients: tuple[tuple[float, ...], ...]

    @classmethod
    def of(cls, knots: tuple[float, ...], points: np.ndarray) -> Bends:
        """Curves that have mean 0 and mean square 1 on ``points`` and are uncorrelated there, with ``t`` too."""
        K = len(knots)
        u = [(knot - knots[0]) / (knots[-1] - knots[0]) for knot in knots]
        raw = []
        for j in range(K - 2):
            # d_j − d_{K−2} with d_j = ((t − u_j)₊³ − (t − 1)₊³)/(1 − u_j): straight beyond the outer knots
            g = [0.0] * (K - 1)
            g[j] += 1.0 / (1.0 - u[j])
            g[K - 2] -= 1.0 / (1.0 - u[K - 2])
            slope = math.fsum(3.0 * g[i] * (1.0 - u[i]) ** 2 for i in range(K - 1))
            raw.append([0.0, 0.0, *g, slope])
        constant, line = [1.0] + [0.0] * (K + 1), [0.0, 1.0] + [0.0] * K
        kept: list[tuple[list[float], list[float]]] = []
        for row in (constant, line, *raw):
            values = cls(knots, (tuple(row),)).columns(points, [True])[0].tolist()
            for _ in range(2):  # the second time removes what rounding left of the first
                for other, at in kept:
                    share = math.fsum(a * b for a, b in zip(values, at, strict=True)) / len(points)
                    row = [a - share * b for a, b in zip(row, other, strict=True)]
                    values = [a - share * b for a, b in zip(values, at, strict=True)]
            size = math.sqrt(math.fsum(a * a for a in values) / len(points))
            if size <= 1e-9:
                raise SchemaError(
                    f"the knots {', '.join(f'{k:g}' for k in knots)} lie where there is next to no data: give knots "
                    "inside the range of the column, or fewer columns."
                )
            kept.append(([a / size for a in row], [a / size for a in values]))
        return cls(knots, tuple(tuple(row) for row, _ in kept[2:]))

    def columns(self, x: np.ndarray, keep: Sequence[bool]) -> list[np.ndarray]:
        """The kept curves at ``x`` (n,), each (n,)."""
        first, width = self.knots[0], self.knots[-1] - self.knots[0]
        u = [(knot - first) / width for knot in self.knots[:-1]]
        rows = [row for row, kept in zip(self.coefficients, keep, strict=True) if kept]
        out = [np.empty(len(x)) for _ in rows]
        for start in range(0, len(x), _BLOCK):
            part = slice(start, start + _BLOCK)
            t = (x[part] - first) / width
            inner = np.minimum(t, 1.0)
            beyond = t - inner
            cubes = []
            for knot in u:
                positive = np.maximum(inner - knot, 0.0)
                cubes.append(positive * positive * positive)
            for column, row in zip(out, rows, strict=True):
                value = row[0] + row[1] * t
                for g, cube in zip(row[2:-1], cubes, strict=True):
                    if g:
                        value += g * cube
                value += row[-1] * beyond
                column[part] = value
        return out
