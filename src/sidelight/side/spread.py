"""What the spread of a log's residual variances over arms says about the hidden features' weights.

A log leaves ``s²_a = σ_a² + τ_a²`` of each arm's rewards unexplained, ``τ_a² = w_{h,a}ᵀΣ_e(a)w_{h,a}``.  Where hidden
weights differ between arms (``w_h ~ N(0, ω I)`` in scaled features) so does ``s²_a``; noise that differs by arm does
the same, and must not be taken for it: ``log σ_a² ~ N(log σ², v)``.  ``τ_a²/ω`` is nearly a gamma variable with the
mean ``Σλ`` and the variance ``2Σλ²`` of ``wᵀΣ_ew``, ``λ`` the eigenvalues of the scaled ``Σ_e``.  With nodes ``q`` of
it and ``n`` of the noise

    p(s² | ω) = Σ_{σ², v} π(σ², v) Π_a Σ_{q, n} N(log s²_a; log(σ²e^{√v n} + ωq), 2/ν_a + ERROR²).
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from sidelight.kernels.variances import spread_value
from sidelight.linalg import Array, exp, log, log_gamma, square

__all__ = ["LogSpread", "SpreadLikelihood"]

#: relative error of a residual variance beyond its sampling error, which also smooths between the nodes of the grid
ERROR = 0.15
#: ``log q`` relative to its mean, in steps such that variances ``ω`` that are factors of ``2^(1/4)`` apart, as a search
#: asks for them, have most of their ``ωq`` in common
STEPS_OF_TWO = 4
NODES = np.arange(-52, 15) * (math.log(2.0) / STEPS_OF_TWO)
#: how far from such a factor, in steps, a variance counts as another one: rounding is far less
SAME_STEP = 1e-6
#: arms that are compared at most
MOST_ARMS = 32
#: variances of the log noise over arms that compete, and the logarithm of each one's weight
NOISE_SPREADS = (0.0, 0.06, 0.25, 1.0, 4.0)
NOISE_WEIGHTS = (0.0, -3.0, -6.0, -9.0, -12.0)
#: points of the grid of the log noise, from a thousandth of the least residual variance to a little above the largest
NOISE_POINTS = 40
#: ``log Σ_{σ², v} π(σ², v)``, to rounding: what is multiplied by it is at most one
_MOST = float(log(NOISE_POINTS * float(exp(np.array(NOISE_WEIGHTS)).sum()))) + 1e-9


@dataclass(frozen=True)
class SpreadLikelihood:
    """What several logs say together: a mean of their ``log p(s² | ω)``, as they tell of the same arms' weights.

    Attributes:
        parts: of each log, with its weight.
        unit: variances ``ω`` are divided by it before a log is asked.
    """

    parts: Sequence[tuple[float, LogSpread]]
    unit: float

    @property
    def most(self) -> float:
        """An upper bound of ``log p``: each arm's factor is a mean of numbers below one."""
        return _MOST

    def __call__(self, omega: float) -> float:
        """The weighted mean of the logs' ``log p(s² | ω)`` at one variance ``ω`` of the hidden weights."""
        total = sum(weight for weight, _ in self.parts)
        return sum(weight / total * part(omega / self.unit) for weight, part in self.parts)


@dataclass
class _Lattice:
    """What arms and noises make of effects ``ωe^u`` at ``log ω = origin`` and all steps from it that were asked for.

    Attributes:
        origin: ``log ω``.
        lowest: how many steps the first effect is above the least node of ``origin``.
        fits: (C, K, P)  how well every arm fits every noise with each of the effects.
    """

    origin: float
    lowest: int
    fits: Array


class LogSpread:
    """``log p(s² | ω)`` of one log, up to a constant.

    Args:
        s2: (K,)  residual variances, in any unit.
        freedom: (K,)  ``ν``, degrees of freedom behind each.
        spreads: (K, m)  ``λ``, eigenvalues of ``Σ_e`` in the features' own units.
    """

    def __init__(self, s2: Array, freedom: Array, spreads: Array) -> None:
        taken = np.linspace(0, len(s2) - 1, min(len(s2), MOST_ARMS)).astype(np.int64)
        s2, freedom, spreads = s2[taken], freedom[taken], spreads[taken]
        means = np.maximum(spreads.sum(axis=1), 1e-12)
        shapes = np.square(means) / np.maximum(2.0 * np.square(spreads).sum(axis=1), 1e-24)
        self._means = means
        # density of log q at its nodes: shape·u − shape·e^u + shape·log shape − log Γ(shape), q in units of its mean
        density = shapes[:, None] * (NODES - exp(NODES)) + (shapes * log(shapes) - log_gamma(shapes))[:, None]
        self._chances = exp(density)
        self._chances = self._chances / self._chances.sum(axis=1)[:, None]
        self._targets = np.stack([log(s2), 2.0 / np.maximum(freedom, 1.0) + square(ERROR)])
        grid = np.linspace(float(log(1e-3 * s2.min())), float(log(1.1 * s2.max())), NOISE_POINTS)
        self._noises = exp(grid)
        gaps = np.square(grid[:, None] - grid)
        #: (spreads · points, points)  the noise of arms around each σ² of the grid, for every spread, and their weights
        kernels = [np.eye(NOISE_POINTS)] + [exp(-0.5 * gaps / spread) for spread in NOISE_SPREADS[1:]]
        self._around = np.concatenate([kernel / kernel.sum(axis=1)[:, None] for kernel in kernels])
        self._weights = np.repeat(NOISE_WEIGHTS, NOISE_POINTS)
        self._found: dict[float, float] = {}
        self._lattices: list[_Lattice] = []

    def __call__(self, omega: float) -> float:
        """``log p(s² | ω)`` at one variance ``ω`` of the hidden weights."""
        if omega not in self._found:
            lattice, step = self._at(float(log(omega)))
            missing, begin = self._extend(lattice, step)
            above = lattice.origin + float(NODES[0]) + missing * (math.log(2.0) / STEPS_OF_TWO)
            at, arms = (begin, step - lattice.lowest), (self._means, self._targets, self._chances)
            self._found[omega] = spread_value(
                exp(above), at, arms, self._noises, lattice.fits, self._around, self._weights
            )
        return self._found[omega]

    def _at(self, position: float) -> tuple[_Lattice, int]:
        """The lattice that ``log ω = position`` is on, and how many steps from its origin."""
        for lattice in self._lattices:
            steps = (position - lattice.origin) * (STEPS_OF_TWO / math.log(2.0))
            if abs(steps - round(steps)) < SAME_STEP:
                return lattice, round(steps)
        self._lattices.append(_Lattice(position, 0, np.zeros((0, len(self._means), NOISE_POINTS))))
        return self._lattices[-1], 0

    def _extend(self, lattice: _Lattice, step: int) -> tuple[Array, int]:
        """Make room for the nodes of an ``ω``: the steps of effects that are missing, and where in ``fits`` they go."""
        end, last = lattice.lowest + len(lattice.fits), step + len(NODES)
        below, beyond = max(lattice.lowest - step, 0), max(last - end, 0)
        room = np.empty((below + beyond, *lattice.fits.shape[1:]))
        lattice.fits = np.concatenate([room[:below], lattice.fits, room[below:]])
        lattice.lowest -= below
        if below:
            return np.arange(float(step), float(step + below)), 0
        return np.arange(float(end), float(end + beyond)), end - lattice.lowest
