"""About how many online rounds a log is worth.

A learner that starts from the log and one that starts cold both go on learning. What they still have to learn in the
next ``T`` rounds is the information those rounds will bring, ``log det(V + TΣ/K) − log det V`` per arm, which also
bounds what they lose in them (the elliptical potential). The log is worth ``n`` rounds if after ``n`` rounds the cold
learner has as little left to learn as the other has at the start:

    Σ_a [log det(λI + J_a + TΣ/K) − log det(λI + J_a)] = K [log det(λI + (n+T)Σ/K) − log det(λI + nΣ/K)],
    J_a = σ² M_aᵀ Λ_a M_a,   Λ_a = G_a / (s² + τ² N/(T/2)),

where ``Λ_a`` is the precision of ``b_a − M̂_a w_a`` once the old policy has answered ``T/2`` queries. No constant in it
is fitted; ``benchmarks/worth.py`` compares it with simulations.

What the log cannot say is assumed: that hidden features are like the recorded ones, as strong and as correlated.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from scipy.linalg import solve_triangular

from sidelight.errors import InputError
from sidelight.logs.regressions import ArmRegressions

__all__ = ["HORIZON", "Worth", "hidden_variance", "two_digits", "worth_in_rounds"]

#: The rounds over which a log's advantage is counted.
HORIZON = 1_000
# Hidden features cause at most this part of the residual variance, where nobody says how large the noise is.
_LARGEST_HIDDEN_SHARE = 0.5


@dataclass(frozen=True)
class Worth:
    """About how many online rounds a log is worth.

    Attributes:
        rounds: the rounds after which a learner without the log has as little left to learn as one with it.
        horizon: ``T``, the rounds over which that is counted.
        noise_variance: the ``σ²`` it was computed with.
        hidden_variance: the ``τ²`` it was computed with, what hidden features add to the residual variance.
        weight_variance: the variance of a weight between arms, of features scaled to unit spread.
        assumption: in words.
    """

    rounds: float
    horizon: int
    noise_variance: float
    hidden_variance: float
    weight_variance: float
    assumption: str

    @property
    def sentence(self) -> str:
        """The sentence the reader came for."""
        if self.rounds < 1:
            return "This log is worth less than one online round."
        rounded = two_digits(self.rounds)
        return f"This log is worth about {rounded:,} online round{'s' if rounded > 1 else ''}."


def two_digits(number: float) -> int:
    """A whole number of two significant digits: more would pretend."""
    if number < 1:
        return 0
    step: int = 10 ** max(0, int(np.floor(np.log10(number))) - 1)
    return round(number / step) * step


@dataclass(frozen=True)
class _Model:
    """A world like the log's, in features scaled to unit second moment (and centred where there is a constant).

    ``moments`` (d, d) is ``Σ``, recorded features first; ``matrix`` (L, d) is ``M = [I, B]``; ``grams`` (K, L, L) the
    log's; ``left_over`` is ``tr Σ_e``, what the recorded features leave of the hidden ones.
    """

    moments: np.ndarray
    matrix: np.ndarray
    grams: np.ndarray
    left_over: float
    weight_variance: float


def worth_in_rounds(summary: ArmRegressions, noise: float | None = None, horizon: int = HORIZON) -> Worth:
    """About how many online rounds this log is worth.

    Args:
        summary: the log.
        noise: the standard deviation ``σ`` of a reward given the full context, if it is known.
        horizon: ``T``, the rounds over which the advantage is counted.
    """
    if horizon < 1:
        raise InputError(f"horizon={horizon} must be at least one round.")
    model = _model(summary)
    s2 = summary.pooled_residual_variance
    tau2 = _hidden_variance(summary, model, noise)
    sigma2 = max(s2 - tau2, 1e-12 * s2)
    assumption = _assumption(summary, noise, horizon)
    if summary.n_recorded == 0 or summary.n_rows == 0 or s2 == 0:
        # Without noise there is nothing to average out; a log without residuals fixes what it recorded.
        rounds = float(summary.n_recorded * summary.n_arms) if s2 == 0 else 0.0
        return Worth(rounds, horizon, sigma2, tau2, model.weight_variance, assumption)
    K, d = summary.n_arms, summary.n_features
    ridge = sigma2 / model.weight_variance * np.eye(d)
    coming = horizon / K * model.moments
    answered = tau2 * summary.n_rows / (horizon / 2)
    left = 0.0
    for gram in model.grams:
        V = ridge + sigma2 / (s2 + answered) * model.matrix.T @ gram @ model.matrix
        left += np.linalg.slogdet(V + coming)[1] - np.linalg.slogdet(V)[1]
    rounds = _rounds_to_have_left(left / K, ridge[0, 0], np.linalg.eigvalsh(model.moments) / K, horizon)
    # A logged row tells no more than a round would have told.
    rounds = min(rounds, float(summary.n_rows))
    return Worth(rounds, horizon, sigma2, tau2, model.weight_variance, assumption)


def hidden_variance(summary: ArmRegressions, noise: float | None = None) -> float:
    """``τ²``, the part of the residual variance that hidden features cause.

    With a known noise it is ``s² − σ²``. Otherwise each hidden feature is taken to matter as much as a recorded one,
    and all of them to cause at most half of ``s²``.
    """
    return _hidden_variance(summary, _model(summary), noise)


def _hidden_variance(summary: ArmRegressions, model: _Model, noise: float | None) -> float:
    s2 = summary.pooled_residual_variance
    if summary.n_features == summary.n_recorded:
        return 0.0
    if noise is not None:
        return max(0.0, s2 - noise**2)
    return min(_LARGEST_HIDDEN_SHARE * s2, model.weight_variance * model.left_over)


def _rounds_to_have_left(target: float, ridge: float, eigenvalues: np.ndarray, horizon: int) -> float:
    """The ``n`` with ``Σ log((λ + (n+T)e)/(λ + n e)) = target``; it falls as ``n`` grows, so halving finds it."""
    e = np.maximum(eigenvalues, 0.0)

    def left(n: float) -> float:
        return float(np.log1p(horizon * e / (ridge + n * e)).sum())

    if target >= left(0.0):
        return 0.0
    low, high = 0.0, 1.0
    while left(high) > target and high < 1e15:
        low, high = high, 2.0 * high
    for _ in range(100):
        middle = 0.5 * (low + high)
        low, high = (middle, high) if left(middle) > target else (low, middle)
    return 0.5 * (low + high)


def _model(summary: ArmRegressions) -> _Model:
    L, d, n = summary.n_recorded, summary.n_features, max(summary.n_rows, 1)
    pooled = summary.grams.sum(axis=0) / n
    means = (summary.means * summary.counts[:, None]).sum(axis=0) / n
    squares = np.diag(pooled)
    varying = squares - means**2 > 1e-9 * squares
    constant = np.flatnonzero(~varying & (squares > 0))
    T = np.eye(L)
    if len(constant):
        # x − mean for every feature that varies: the constant takes up the mean, so the model is the same.
        T[constant[0], varying] = -means[varying] / means[constant[0]]
        pooled = T.T @ pooled @ T
        squares = np.diag(pooled)
    scales = np.where(squares > 0, np.sqrt(np.maximum(squares, 0.0)), 1.0)
    T = T / scales
    recorded = pooled / np.outer(scales, scales)
    grams = np.swapaxes(T, 0, 1)[None] @ summary.grams @ T[None]
    moments, matrix, left_over = _with_hidden(recorded, varying, d)
    return _Model(moments, matrix, grams, left_over, _weight_variance(summary, varying, scales))


def _with_hidden(recorded: np.ndarray, varying: np.ndarray, d: int) -> tuple[np.ndarray, np.ndarray, float]:
    """``Σ`` (d, d), ``M`` (L, d) and ``tr Σ_e`` if hidden features are as correlated as the recorded ones that vary."""
    L = len(recorded)
    m, k = d - L, int(varying.sum())
    inner = recorded[np.ix_(varying, varying)]
    correlation = float((inner.sum() - np.trace(inner)) / (k * (k - 1))) if k > 1 else 0.0
    correlation = min(0.99, max(correlation, -0.9 / max(d - 1, 1)))
    cross = np.zeros((L, m))
    cross[varying] = correlation
    # A little ridge: repeated columns must not matter here.
    B = np.linalg.solve(recorded + 1e-9 * np.eye(L), cross) if L else np.zeros((0, m))
    left = (1 - correlation) * np.eye(m) + correlation - B.T @ cross
    values, vectors = np.linalg.eigh(0.5 * (left + left.T)) if m else (np.zeros(0), np.zeros((0, 0)))
    # A sample's correlations need not fit together; the hidden ones then get a little variance of their own.
    left = (vectors * np.maximum(values, 1e-3)) @ vectors.T
    moments = np.block([[recorded, cross], [cross.T, left + B.T @ recorded @ B]])
    return moments, np.hstack([np.eye(L), B]), float(np.trace(left))


def _weight_variance(summary: ArmRegressions, varying: np.ndarray, scales: np.ndarray) -> float:
    """The variance of a weight between arms, from the log's own coefficients, of scaled features.

    What the coefficients vary by from arm to arm less what their standard errors explain; what all arms share does not
    matter for choosing among them. With one arm it is the mean square instead. At least a thousandth of the mean
    square, so that noise cannot make it nothing; without a coefficient to go by, half the reward is taken to be signal.
    """
    arms = np.flatnonzero(summary.determined & (summary.counts > 0))
    L = summary.n_recorded
    reward = float((summary.factors[:, :, L] ** 2).sum() / max(summary.n_rows, 1))
    fallback = max(0.5 * reward / max(summary.n_features, 1), 1e-300)
    if len(arms) == 0 or not varying.any():
        return fallback
    b = summary.least_squares(arms)[:, varying] * scales[varying]
    errors = np.array([summary.residual_variances[a] * _inverse_diagonal(summary.factors[a])[varying] for a in arms])
    errors *= scales[varying] ** 2
    spread = b.var(axis=0, ddof=1) if len(arms) > 1 else b[0] ** 2
    found = float((spread - errors.mean(axis=0)).mean())
    least = 1e-3 * float((b**2).mean())
    return max(found, least) or fallback


def _inverse_diagonal(factor: np.ndarray) -> np.ndarray:
    """The diagonal of ``G⁻¹``, from the triangular factor."""
    L = len(factor) - 1
    inverse = solve_triangular(factor[:L, :L], np.eye(L))
    return np.asarray((inverse**2).sum(axis=1))


def _assumption(summary: ArmRegressions, noise: float | None, horizon: int) -> str:
    hidden = summary.n_features - summary.n_recorded
    words = (
        f"That is: a learner without it would need about so many rounds before its next {horizon:,} cost as little as "
        f"the first {horizon:,} of one that starts from it. "
    )
    if hidden == 0:
        return words + "It assumes that the old rows come from the world the learner will act in."
    words += (
        "It assumes that the old policy says in every round what it would do, that hidden features are as strong and "
        "as correlated as recorded ones, and that the log is honest"
    )
    if noise is None:
        words += "; the noise is guessed from the residuals (--noise or noise= if you know it)"
    return words + "."
