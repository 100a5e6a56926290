"""Are rewards linear, and does the present stand still?  Two tests that look at the rounds alone, never at a log.

Both follow the errors ``e`` of predictions from rounds alone, in units of the noise, whose weights, projections and
directions are fixed from one refresh to the next.  So each error is compared with what was fixed before it was seen.

**Linearity.**  Terms ``f`` (squares of a few scaled features, products of neighbours) are taken less their regression
on the features, ``f̃ = f − Γz``, so that errors of the weights do not matter.  If rewards are linear and the noise is
symmetric, ``exp(γ·Σef̃ − ½γᵀ(Σe²f̃f̃ᵀ)γ)`` is a supermartingale for every ``γ``, whatever the variance of the noise and
however it changes with the context; mixed over ``γ ~ N(0, (share/2p)I)`` for each arm and over a few shares, so is

    E = mean over shares of  Π_a  det(I + TV_a)^{-½} exp(½ S_aᵀ(V_a + I/T)⁻¹S_a),   T = share/2p.

A few terms see few of the ``d²/2`` products of many features.  So quadratic forms compete with them that are chosen
from what was seen before (``side.forms``) and fixed from one refresh to the next: a form ``g`` has variance one, its
``γ`` is the same for all arms, and its evidence the same formula with ``p = ½`` and sums over all arms.  Half of the
evidence is that of the terms, the other half that of the forms, in equal parts.

**Drift.**  With ``δ`` the movement of an arm's weights at the last refresh and ``u = e(δ·z)/σ``, ``exp(λΣu − ½λ²Σu²)``
has mean at most one while the world stands still: the error of least squares is not correlated with their last step.
Weights that follow a moving world lag behind it, so that ``Σu > 0``.

Rounds between two refreshes share one error of the weights, of covariance ``σ²C = σ²(Σzzᵀ)⁻¹`` from before them.  It
adds ``qCqᵀ`` to the matrices of squares, ``q = Σf̃zᵀ`` of these rounds (nothing where contexts are as before), and
likewise to ``Σu²``: where an arm comes to be played in new contexts its large errors there are expected.

By Ville's inequality each ever exceeds ``1/p`` with probability at most ``p``: they may be looked at at any time.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from sidelight.kernels.misfit import FORMS, HEAD, SQUARES, MisfitSums, add_rows, sums_of, vectors_for
from sidelight.linalg import Array, apply, exp, inverse, log, log1p, product, solve, symmetric_eigen
from sidelight.side.coordinates import Units
from sidelight.side.forms import NOTHING, forms_of

__all__ = ["ERROR_RATE", "NEVER", "Misfit", "restarted", "terms_of"]

#: the chance that a linear world is ever called curved, and a world that stands still is ever said to move
ERROR_RATE = 0.02
#: the most terms that are looked at
TERMS = 16
#: shares of the noise's variance that the terms may explain, which compete
SHARES = np.array([0.03, 0.1, 0.3, 1.0])
#: what part of the movement still to come the last movement of the weights was, which compete
SPEEDS = np.array([0.25, 0.5, 1.0, 2.0, 4.0])
#: rounds of an arm for each feature before its errors are tested: weights and projections must be near convergence
ENOUGH = 3.0
#: what is added to a Gram matrix, relative to its diagonal, so that features which repeat each other do not matter
RIDGE = 1e-6
#: stands for the logarithm of 0
NEVER = -1e9


def terms_of(varying: NDArray[np.int64]) -> NDArray[np.int64]:
    """(n, 3)  rows ``(term, j, k)``: squares of the varying features, then products of neighbours, as far as room is.

    Where there are more features than terms, several squares share one.
    """
    n = len(varying)
    rows = [(i % TERMS, int(j), int(j)) for i, j in enumerate(varying)]
    for lag in range(1, n):
        rows += [(len(rows) + i, int(varying[i]), int(varying[i + lag])) for i in range(n - lag)]
    return np.array(rows[: max(n, TERMS)], dtype=np.int64).reshape(-1, 3)


def restarted(started: Array, factor: Array, step: int) -> Array:
    """``log A`` after ``step``, ``A ← L(A + 1/(step(step + 1)))``: ratios ``L`` multiplied from any step on.

    ``A + 1/(step + 1)`` is a mixture over the steps at which evidence begins to count, so it is a martingale if the
    products of the ratios are.  What spoke for the null long ago does not weigh down what speaks against it now.

    Args:
        started: ``log A`` before; ``NEVER`` at first.
        factor: ``log L`` of this step.
        step: counted from 1.
    """
    fresh = -log(step * (step + 1.0))
    high = np.maximum(started, fresh)
    return np.asarray(factor + high + log1p(exp(-np.abs(started - fresh))))


class Misfit:
    """The sums of both tests and what they say.

    Attributes:
        arena, sizes: ``kernels.misfit.MisfitSums``.
        base: (K, d, d)  ``Σ x xᵀ`` when the sums began   began: (K,)  rounds of every arm then.
        fixed: (K, d, d)  ``Σ z zᵀ`` at the last refresh   fixed_cross: (K, p, d)  ``Σ f zᵀ`` then.
        started: (speeds,)  ``log A`` of the drift test   steps: refreshes that it has seen.
        curved, moving: log evidence against linear rewards and against a world that stands still; its maximum so far.
        share: the part of what rounds leave unexplained that the terms explain.
    """

    def __init__(self, arena: Array, sizes: NDArray[np.int64], constant: int | None, base: Array, began: Array) -> None:
        self.arena, self.sizes, self.constant = arena, sizes, constant
        self.base, self.began = base, began
        self.fixed, self.fixed_cross = np.zeros_like(base), np.zeros_like(self.sums.cross)
        self.started = np.full(len(SPEEDS), NEVER)
        self.steps = 0
        self.curved = self.moving = self.share = 0.0

    @property
    def sums(self) -> Any:
        """The named parts of the arena; made anew for each use, so that a copy of this object has parts of its own."""
        return sums_of(self.arena, self.sizes)

    @classmethod
    def begin(cls, units: Units, grams: Array, counts: Array) -> Misfit | None:
        """Empty sums in these units, in internal order; None if no feature varies.  grams: (K, d, d)   counts: (K,)"""
        K, d, _ = grams.shape
        varying = np.array([j for j in np.flatnonzero(units.known) if j != units.constant], dtype=np.int64)
        if not len(varying):
            return None
        pairs = terms_of(varying)
        arena, sizes = vectors_for(K, d, int(pairs[:, 0].max()) + 1, pairs)
        out = cls(arena, sizes, units.constant, grams.copy(), counts.astype(np.float64))
        out.sums.centres[:], out.sums.scales[:] = units.centres, units.scales
        out.sums.reward_centre[0], out.sums.noises[:] = units.reward_centre, 1.0
        return out

    def add(self, order: NDArray[np.int64], X: Array, arms: NDArray[np.int64], rewards: Array) -> None:
        """Add rounds, in order.  order: (d,) internal → context   X: (n, d)   arms: (n,)   rewards: (n,)"""
        add_rows(self.arena, self.sizes, order, X, arms, rewards)

    def take_out(self, a: int, gram: Array) -> None:
        """Take a round out of arm ``a``, whose ``Σ x xᵀ`` has become smaller by ``gram`` (d, d).

        Whether it came before these sums began or since, the rounds since then are left as they are: what terms and
        features have in common is the same whichever arm was played.
        """
        self.base[a] -= gram
        self.began[a] -= 1.0

    def refresh(self, rounds: tuple[Array, Array], counts: Array, noises: Array) -> None:
        """Judge the errors since the last refresh, and fix what the next ones are compared with.

        Args:
            rounds: ``Σ x xᵀ`` (K, d, d) and ``Σ x r`` (K, d).
            counts: (K,)  rounds of every arm.
            noises: (K,)  ``σ_a``.
        """
        s, units = self.sums, self._units()
        self._share_errors(s, units, rounds[0])
        self._judge(s)
        enough = np.flatnonzero(counts - self.began >= ENOUGH * s.weights.shape[1])
        if not len(enough):
            return
        grams, moments = rounds
        # no prior: it is learned from the logs too
        G, h = units.evidence(grams[enough], moments[enough])
        weights = solve(_regular(G), h[:, :, None])[:, :, 0]
        self.fixed[enough], self.fixed_cross[enough] = G, s.cross[enough]
        G, _ = units.evidence(grams[enough] - self.base[enough], np.zeros_like(h))
        was = s.active[enough] == 1
        s.moved[enough] = np.where(was[:, None], weights - s.weights[enough], 0.0)
        s.weights[enough] = weights
        s.projections[enough] = np.swapaxes(solve(_regular(G), np.swapaxes(s.cross[enough], 1, 2)), 1, 2)
        s.noises[enough] = noises[enough]
        s.active[enough] = 1
        forms = forms_of(s.bent[enough], self.fixed[enough], counts[enough], weights, self.constant)
        K, d = s.weights.shape
        s.directions.reshape(K, FORMS, SQUARES, d)[enough] = forms.directions
        s.curvatures[enough], s.levels[enough] = forms.curvatures, forms.levels

    def _share_errors(self, s: MisfitSums, units: Units, grams: Array) -> None:
        """Add to the sums of squares what the weights' error, which all rounds since the last refresh share, adds."""
        active = np.flatnonzero(s.active)
        if not len(active):
            return
        G, _ = units.evidence(grams[active], np.zeros((len(active), s.weights.shape[1])))
        since = G - self.fixed[active]
        covariances = inverse(_regular(self.fixed[active]))
        q = s.cross[active] - self.fixed_cross[active] - product(s.projections[active], since)
        s.squares[active] += product(product(q, covariances), np.swapaxes(q, 1, 2))
        step = apply(since, s.moved[active])
        s.drift[active, 1] += (step * apply(covariances, step)).sum(axis=1) / np.square(s.noises[active])
        reach = s.reach.reshape(len(s.active), FORMS, -1)
        s.along[active, :, 1] += (reach[active] * product(reach[active], covariances)).sum(axis=2)
        reach[active] = 0.0

    def _judge(self, s: MisfitSums) -> None:
        tested = np.flatnonzero(s.rounds > 0.0)
        if not len(tested):
            return
        values, vectors = symmetric_eigen(s.squares[tested])
        values = np.maximum(values, 0.0)
        scores = np.square(apply(np.swapaxes(vectors, 1, 2), s.scores[tested]))
        T = (SHARES / (2.0 * s.scores.shape[1]))[:, None, None]
        found = 0.5 * (T * scores / (1.0 + T * values) - log1p(T * values)).sum(axis=(1, 2))
        score, square = np.cumsum(s.along, axis=0)[-1].T
        T = SHARES[:, None]
        forms = 0.5 * (T * np.square(score) / (1.0 + T * square) - log1p(T * square))
        self.curved = max(self.curved, _log_mean(np.array([_log_mean(found), _log_mean(forms.ravel())])))
        # pure noise has a squared length of 1 in each direction
        told = values > 1e-9 * values.max(axis=1, keepdims=True)
        explained = np.where(told, scores / np.where(told, values, 1.0) - 1.0, 0.0).sum()
        by_forms = np.where(square > 0.0, np.square(score) / np.where(square > 0.0, square, 1.0) - 1.0, 0.0)
        explained = max(float(explained), float(by_forms.max()))
        self.share = min(max(explained / float(s.rounds.sum()), 0.0), 1.0)
        factors = SPEEDS * s.drift[:, 0].sum() - 0.5 * np.square(SPEEDS) * s.drift[:, 1].sum()
        s.drift[:] = 0.0
        self.steps += 1
        self.started = restarted(self.started, factors, self.steps)
        self.moving = max(self.moving, _log_mean(self.started))

    def _units(self) -> Units:
        s = self.sums
        d = len(s.centres)
        return Units(s.centres, s.scales, np.ones(d), self.constant, float(s.reward_centre[0]), 1.0, 1.0, True)

    def grown(self, K: int) -> Misfit:
        """A copy with more arms at the end, whose sums are zero."""
        old, n = self.sums, len(self.began)
        arena, sizes = vectors_for(K, old.weights.shape[1], old.scores.shape[1], np.array(old.pairs))
        base = np.concatenate([self.base, np.zeros((K - n, *self.base.shape[1:]))])
        out = Misfit(arena, sizes, self.constant, base, np.append(self.began, np.zeros(K - n)))
        for name in old._fields:
            mine, theirs = getattr(out.sums, name), getattr(old, name)
            mine[: len(theirs)] = theirs
        out.sums.noises[n:] = 1.0
        out.fixed[:n], out.fixed_cross[:n] = self.fixed, self.fixed_cross
        out.started, out.steps = self.started.copy(), self.steps
        out.curved, out.moving, out.share = self.curved, self.moving, self.share
        return out

    def state(self) -> dict[str, Any]:
        """Arrays to be saved."""
        return {
            "misfit_arena": self.arena,
            "misfit_sizes": self.sizes,
            "misfit_base": self.base,
            "misfit_began": self.began,
            "misfit_fixed": self.fixed,
            "misfit_fixed_cross": self.fixed_cross,
            "misfit_started": self.started,
            "misfit_numbers": np.array([self.steps, self.curved, self.moving, self.share]),
        }

    @classmethod
    def restored(cls, arrays: dict[str, Any], constant: int | None) -> Misfit | None:
        """The inverse of ``state``; None for a file that has none."""
        if "misfit_arena" not in arrays:
            return None
        arena, sizes = (
            np.array(arrays["misfit_arena"], dtype=np.float64),
            np.array(arrays["misfit_sizes"], dtype=np.int64),
        )
        base, began = (
            np.array(arrays["misfit_base"], dtype=np.float64),
            np.array(arrays["misfit_began"], dtype=np.float64),
        )
        K, d, p, n = (int(v) for v in sizes[:4])
        whole, _ = vectors_for(K, d, p, sizes[HEAD : HEAD + 3 * n].reshape(n, 3))
        # a file from before there were forms has the sums of the terms alone, which come first
        whole[: len(arena)] = arena
        arena = whole
        out = cls(arena, sizes, constant, base, began)
        out.fixed[...], out.fixed_cross[...] = arrays["misfit_fixed"], arrays["misfit_fixed_cross"]
        out.started = np.array(arrays["misfit_started"], dtype=np.float64)
        steps, out.curved, out.moving, out.share = (float(v) for v in arrays["misfit_numbers"])
        out.steps = int(steps)
        return out


def _regular(G: Array) -> Array:
    """``G`` with a larger diagonal, 1 where it is zero but for rounding.  (K, d, d), of features of scale one"""
    diagonal = np.einsum("aii->ai", G)
    more = np.where(diagonal > NOTHING * diagonal.max(axis=1, keepdims=True), RIDGE * diagonal, 1.0)
    return np.asarray(G + more[:, :, None] * np.eye(G.shape[1]))


def _log_mean(values: Array) -> float:
    """Logarithm of the mean of ``e`` to the power of the values."""
    high = float(values.max())
    return high + float(log(float(exp(values - high).sum()) / len(values)))
