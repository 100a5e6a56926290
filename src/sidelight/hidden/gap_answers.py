"""Answers of the old policy at contexts with gaps: what they say about how hidden features go with recorded ones.

With ``a`` the arm that the policy named, a context with gaps takes part in the regression of ``x_h`` on ``x_o`` under
``a`` in two ways, which differ because ``B_a`` has recorded features on one side and hidden ones on the other:

- A missing *recorded* feature is replaced by ``E[x_o | present x_o, a]``, which the log knows.  It must not be inferred
  from hidden features: ``E[x_h | present x_o, a] = B_aᵀE[x_o | present x_o, a]``, so a regression on such values has
  ``B_a`` as its coefficients, and only its residuals are larger.  For the regression over all arms it is likewise
  ``E[x_o | present x_o]``: values that depend on the arm would let its slopes follow what differs between arms.
- A missing *hidden* feature is filled when the regression is computed, by the regression itself and by what it leaves
  of the hidden features that are there (the EM algorithm for normal features).  For that the sums of contexts are kept
  apart by which hidden features they lack.  Such an answer counts for the share of hidden features that it has.

Values must not be missing because of what they are, beyond what the arm and the other features tell.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import cached_property
from typing import Any

import numpy as np
from numpy.typing import NDArray

from sidelight.hidden.sums import AnswerSums
from sidelight.linalg import Array, apply, inverse, product, symmetrize
from sidelight.logs.summary import LogSummary

__all__ = ["GapAnswers", "Prediction", "conditional"]

#: sums are kept for at most so many sets of missing hidden features; a further one is counted under a set that
#: includes it
PATTERNS = 32
#: how many rows of all arms together an arm's own moments of recorded features start with, for each of them
POOLED_ROWS = 4.0
#: relative to a correlation matrix's diagonal, what is added so that features which repeat each other have an inverse
RIDGE = 1e-6
#: a feature whose variance is this small a part of its second moment does not vary
SAME = 1e-12
#: standardised values are clipped to this absolute value before others are inferred from them
FARTHEST = 10.0


def conditional(
    x: Array, means: Array, scales: Array, precision: Array
) -> tuple[Array, NDArray[np.int64], Array, Array]:
    """``E[x | present]``, the positions of what is missing, NaN, its ``Cov(z | present)``, and ``z_pᵀC_pp⁻¹z_p``.

    With ``Ω = C⁻¹`` the precision of ``z = (x − means)/scales``, ``ẑ_m = −Ω_mm⁻¹Ω_mp z_p``, ``Cov(z_m|z_p) = Ω_mm⁻¹``
    and ``C_pp⁻¹ = Ω_pp − Ω_pmΩ_mm⁻¹Ω_mp``.

    Args:
        x: (d,)  with NaN where something is missing.
        means: (…, d)  of one population or of several.
        scales: (…, d)  0 for features that do not vary.
        precision: (…, d, d)  ``Ω``.
    """
    missing = np.isnan(x)
    gaps = np.flatnonzero(missing)
    varied = scales > 0.0
    z = np.where(missing | ~varied, 0.0, (x - means) / np.where(varied, scales, 1.0))
    z = np.clip(z, -FARTHEST, FARTHEST)
    rows = precision[..., gaps, :]
    covariance = inverse(rows[..., gaps])
    pulled = apply(rows, z)
    moved = apply(covariance, pulled)
    filled = np.array(np.broadcast_to(x, means.shape))
    filled[..., gaps] = means[..., gaps] - scales[..., gaps] * moved
    explained = apply(z[..., None, :], apply(precision, z)) - apply(pulled[..., None, :], moved)
    return filled, gaps, covariance, np.maximum(explained[..., 0], 0.0)


class GapSums:
    """Sums of contexts that lack the same hidden features, which are 0 in them.

    The last of the ``n = K + 1`` entries is for all arms together, each context once.

    Attributes:
        S: (n, d, d)   squared: (n, L, L)   sums: (n, d)   counts: (n,)   as ``S``, ``S_squared`` … of ``AnswerSums``.
        excess: (n, L + 1)   whole: (L, L)   whole_excess: (L + 1,)   likewise.
    """

    names = ("S", "squared", "sums", "counts", "excess", "whole", "whole_excess")

    def __init__(self, K: int, d: int, L: int) -> None:
        n = K + 1
        self.S, self.squared = np.zeros((n, d, d)), np.zeros((n, L, L))
        self.sums, self.counts, self.excess = np.zeros((n, d)), np.zeros(n), np.zeros((n, L + 1))
        self.whole, self.whole_excess = np.zeros((L, L)), np.zeros(L + 1)

    def add(self, X: Array, chances: Array, weight: float) -> None:
        """One answer.

        Args:
            X: (n, d)  the context as it is under each arm and under all of them, recorded features first.
            chances: (K,)  of the arms, 1 for one that was named.
            weight: one over the probability with which the context was asked about.
        """
        L = self.squared.shape[1]
        weights = weight * np.append(chances, 1.0)
        scaled = weights[:, None] * X
        self.S += scaled[:, :, None] * X[:, None, :]
        self.squared += scaled[:, :L, None] * scaled[:, None, :L]
        self.sums += scaled
        self.counts += weights
        ones = np.append(X[:, :L], np.ones((len(X), 1)), axis=1)
        self.excess += (weights * (weights - 1.0))[:, None] * ones
        self.whole += scaled[-1, :L, None] * scaled[-1, :L]
        self.whole_excess += weight * (weight - 1.0) * ones[-1]


class Prediction:
    """Regressions of hidden features on ``(x_o, 1)``, of each arm and of all arms together.

    Attributes:
        slopes: (n, L, m)   levels: (n, m)   residual: (m, m)  second moments of what they leave.
    """

    def __init__(self, slopes: Array, levels: Array, residual: Array) -> None:
        self.slopes, self.levels, self.residual = slopes, levels, residual

    def of(self, missing: Sequence[int]) -> tuple[Array, Array, Array]:
        """Of some hidden features, given the recorded and the other hidden ones: ``x̂ = Wᵀx + k``.

        Returns:
            ``W`` (n, d, q), zero for the missing ones; ``k`` (n, q); and the covariance (q, q) of what is left.
        """
        n, L, m = self.slopes.shape
        gone = np.zeros(m, dtype=bool)
        gone[list(missing)] = True
        there, at = np.flatnonzero(~gone), np.flatnonzero(gone)
        varied, scales, correlations = self._correlations
        C = product(correlations[at[:, None], there], inverse(correlations[there[:, None], there]))
        left = correlations[at[:, None], at] - product(C, correlations[there[:, None], at])
        C = C * scales[at, None] / scales[there]
        W = np.zeros((n, L + m, len(at)))
        W[:, :L] = self.slopes[:, :, at] - product(self.slopes[:, :, there], C.T)
        W[:, L + there] = C.T
        k = self.levels[:, at] - product(self.levels[:, there], C.T)
        size = np.where(varied, scales, 0.0)[at]
        return W, k, np.asarray(left * size[:, None] * size)

    @cached_property
    def _correlations(self) -> tuple[NDArray[np.bool_], Array, Array]:
        """Of what the regressions leave: which features (m,) vary, their deviations (m,), 1 if not, and (m, m)."""
        scales = np.sqrt(np.diagonal(self.residual))
        varied = scales > 0.0
        scales = np.where(varied, scales, 1.0)
        correlations = np.where(varied[:, None] & varied, self.residual / scales[:, None] / scales, 0.0)
        np.fill_diagonal(correlations, 1.0 + RIDGE)
        return varied, scales, correlations


class GapAnswers:
    """Sums of answers at contexts with gaps, by the hidden features that were missing.

    Attributes:
        n_answers: how many of them.
        patterns: for each set of missing hidden features (positions among them) its sums.
    """

    def __init__(self, summary: LogSummary) -> None:
        self.summary = summary
        self.n_answers, self.total_weight = 0, 0.0
        self.patterns: dict[tuple[int, ...], GapSums] = {}

    # ------------------------------------------------------------------------------------- learning

    def add(self, x: Array, chances: Array, probability: float) -> bool:
        """Add one answer at a context with gaps; returns whether anything could be learned from it.

        Args:
            x: (d,)  NaN where something is missing.
            chances: (K,)  1 for the arm that was named, or the policy's probabilities.
            probability: with which the context was asked about.
        """
        s = self.summary
        observed, hidden = x[np.asarray(s.recorded)], x[np.asarray(s.hidden)].copy()
        place = self._place(tuple(int(j) for j in np.flatnonzero(np.isnan(hidden))))
        if place is None:
            return False
        hidden[list(place)] = 0.0
        X = np.tile(np.concatenate([observed, hidden]), (s.n_arms + 1, 1))
        if np.isnan(observed).any():
            X[:, : len(observed)] = conditional(observed, *self._recorded)[0]
        if place not in self.patterns:
            self.patterns[place] = GapSums(s.n_arms, len(x), s.n_recorded)
        self.patterns[place].add(X, chances, 1.0 / probability)
        self.n_answers += 1
        self.total_weight += 1.0 / probability
        return True

    def _place(self, missing: tuple[int, ...]) -> tuple[int, ...] | None:
        """The pattern of missing hidden features to count it under; None if all are missing, or no pattern is left."""
        if len(missing) == len(self.summary.hidden):
            return None
        if missing in self.patterns or len(self.patterns) < PATTERNS:
            return missing
        including = [pattern for pattern in self.patterns if set(missing) <= set(pattern)]
        return min(including, key=len) if including else None

    @cached_property
    def _recorded(self) -> tuple[Array, Array, Array]:
        """Means (n, L), scales (n, L) and precisions (n, L, L) of the recorded features: of every arm, and of all."""
        s = self.summary
        counts, L = np.asarray(s.counts, dtype=np.float64), s.n_recorded
        means, second = np.asarray(s.means), np.asarray(s.second_moments)
        shares = (counts / max(float(counts.sum()), 1.0))[:, None]
        covariances = second - means[:, :, None] * means[:, None, :]
        mean = (shares * means).sum(axis=0)
        squares = (shares[:, :, None] * second).sum(axis=0)
        within = (shares[:, :, None] * covariances).sum(axis=0)
        own = (counts / (counts + POOLED_ROWS * L))[:, None]
        means = np.concatenate([own * means + (1.0 - own) * mean, mean[None]])
        own = own[:, :, None]
        covariances = np.concatenate([own * covariances + (1.0 - own) * within, (squares - mean[:, None] * mean)[None]])
        variances = np.einsum("aii->ai", covariances)
        varied = variances > SAME * np.diagonal(squares)
        unit = np.sqrt(np.where(varied, variances, 1.0))
        both = varied[:, :, None] & varied[:, None, :]
        correlations = np.where(both, covariances / unit[:, :, None] / unit[:, None, :], 0.0)
        np.einsum("aii->ai", correlations)[...] = 1.0 + RIDGE
        return means, np.where(varied, unit, 0.0), inverse(correlations)

    # ------------------------------------------------------------------------------------ completing

    def start(self, complete: AnswerSums) -> Prediction:
        """A first prediction without the recorded features: mean and variance over contexts that had the feature."""
        K, L, m = complete.S12.shape
        n = np.full(m, complete.counts.sum())
        sums, squares = complete.sums[:, L:].sum(axis=0), np.einsum("aii->ai", complete.S22).sum(axis=0)
        for missing, part in self.patterns.items():
            there = np.ones(m)
            there[list(missing)] = 0.0
            n += there * part.counts[-1]
            sums += part.sums[-1, L:]
            squares += np.diagonal(part.S[-1])[L:]
        means, second = sums / np.maximum(n, 1e-300), squares / np.maximum(n, 1e-300)
        variances = second - means * means
        variances = np.where(variances > SAME * second, variances, 0.0)
        return Prediction(np.zeros((K + 1, L, m)), np.broadcast_to(means, (K + 1, m)), np.diag(variances))

    def completed(self, complete: AnswerSums, prediction: Prediction) -> AnswerSums:
        """The sums of all answers, missing hidden features in their expectation; each counts for what it has."""
        m = complete.S12.shape[2]
        out = AnswerSums(self.summary)
        for name in ("S", "S_squared", "sums", "counts", "whole", "excess", "whole_excess"):
            setattr(out, name, getattr(complete, name).copy())
        for missing, part in self.patterns.items():
            S, sums = self._filled(part, missing, prediction)
            share = (m - len(missing)) / m
            out.S += share * S[:-1]
            out.sums += share * sums[:-1]
            out.S_squared += share * part.squared[:-1]
            out.counts += share * part.counts[:-1]
            out.excess += share * part.excess[:-1]
            out.whole += share * part.whole
            out.whole_excess += share * part.whole_excess
            for more, values in zip(out.apart, (S, sums, part.squared, part.excess), strict=True):
                more += share * (values[-1] - values[:-1].sum(axis=0))
        return out

    def _filled(self, part: GapSums, missing: tuple[int, ...], prediction: Prediction) -> tuple[Array, Array]:
        """``S`` (n, d, d) and ``sums`` (n, d) with the expectations of missing hidden features."""
        if not missing:
            return part.S, part.sums
        at = self.summary.n_recorded + np.array(missing)
        W, k, left = prediction.of(missing)
        n = part.counts
        cross = product(part.S, W) + part.sums[:, :, None] * k[:, None, :]
        mean = product(part.sums[:, None, :], W)[:, 0] + n[:, None] * k
        second = product(np.swapaxes(W, 1, 2), cross) + k[:, :, None] * mean[:, None, :] + n[:, None, None] * left
        S, sums = part.S.copy(), part.sums.copy()
        S[:, :, at] += cross
        S[:, at, :] = np.swapaxes(S[:, :, at], 1, 2)
        S[:, at[:, None], at] = symmetrize(second)
        sums[:, at] = mean
        return S, sums

    # ---------------------------------------------------------------------------------------- files

    def copy(self) -> GapAnswers:
        """An independent copy."""
        twin = GapAnswers(self.summary)
        twin.restore({name: np.array(value) for name, value in self.state().items()})
        return twin

    def state(self) -> dict[str, Any]:
        """Arrays to be saved; none where no context had gaps."""
        if not self.patterns:
            return {}
        masks = np.zeros((len(self.patterns), len(self.summary.hidden)), dtype=bool)
        for i, missing in enumerate(self.patterns):
            masks[i, list(missing)] = True
        parts = self.patterns.values()
        stacked = {f"gaps_{name}": np.stack([getattr(part, name) for part in parts]) for name in GapSums.names}
        return {"gaps_missing": masks, "gaps_totals": np.array([self.n_answers, self.total_weight]), **stacked}

    def restore(self, arrays: dict[str, Any]) -> None:
        """The inverse of ``state``."""
        self.patterns, self.n_answers, self.total_weight = {}, 0, 0.0
        if "gaps_missing" not in arrays:
            return
        s = self.summary
        self.n_answers, self.total_weight = int(arrays["gaps_totals"][0]), float(arrays["gaps_totals"][1])
        for i, mask in enumerate(np.asarray(arrays["gaps_missing"], dtype=bool)):
            part = GapSums(s.n_arms, s.n_features, s.n_recorded)
            for name in GapSums.names:
                setattr(part, name, np.array(arrays[f"gaps_{name}"][i], dtype=np.float64))
            self.patterns[tuple(int(j) for j in np.flatnonzero(mask))] = part
