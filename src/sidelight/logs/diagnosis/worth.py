"""The range of online rounds that a log is worth.

A learner that starts from the log and one that starts cold both go on learning. A log is worth ``n`` rounds if after
``n`` rounds the cold learner loses as little in its next ``T`` rounds as the other loses in its first ``T``.

What a learner loses in a round follows from how well it knows the arms. Let an arm's reward in context ``x`` vary by
``p(x) = xᵀΩx`` between arms (``Ω`` the prior variance of weights), and let ``e(x) = σ²xᵀV⁻¹x`` of that be unknown
still. The best of ``K`` arms is better than an average one by ``c_K√p``, the one that looks best by ``c_K√(p − e)``,
where ``c_K`` is the expected maximum of ``K`` standard normal draws; the round costs the difference. With

    V_cold(t) = σ²Ω⁻¹ + information of t/K rounds,
    V_warm(t) = σ²Ω⁻¹ + σ²MᵀΛ(t)M + information of t/K rounds,     Λ(t) = G/(s² + τ²N/t),

``Λ(t)`` the precision of ``b − M̂w`` once the old policy has answered ``t`` queries. The information of ``m`` random
rounds is ``mΣ/(1 + δ)``, ``δ = tr Σ(V + mΣ/(1 + δ))⁻¹``, which counts that fewer rounds than features leave directions
untried.

A learner does not play at random: what it plays tells less than random rounds would. How much less depends on the
learner and the world; between 30 % and all of it in simulations. That gives the ends of the range. What the log does
not say (noise, strength and covariance of hidden features) is told, measured in rows that have the hidden columns, or
open; where it is open the ends are far apart, and there is no number. ``benchmarks/worth.py`` compares this with
simulations.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np

from sidelight.errors import InputError
from sidelight.labels import counted
from sidelight.logs.regressions import ArmRegressions

__all__ = ["HORIZON", "LEAST_TOLD", "Worth", "hidden_share", "two_digits", "worth_in_rounds"]

#: The rounds over which a log's advantage is counted.
HORIZON = 1_000
#: Information of a learner's round relative to a round in which the arm is drawn at random: least and most.
_INFORMATION = (0.3, 1.0)
#: The hidden features' share of the residual variance if the noise is not given: least and most.
_OPEN_SHARE = (0.1, 0.8)
#: If something is hidden, ranges that end below this many rounds are not distinguished: the formula leaves out the
#: first rounds of a cold learner, in which it finds its scale.
LEAST_TOLD = 100.0
_CONTEXTS = 128
_LONGEST = 1e6
#: numbers in one stack of matrices of the cold learner
_NUMBERS = 1 << 20


@dataclass(frozen=True)
class Worth:
    """The range of online rounds that a log is worth.

    Attributes:
        low, high: ends of the range in rounds.
        known: whether the range says anything; where it does not, no number is shown.
        horizon: ``T``, the rounds over which the advantage is counted.
        residual_variance: ``s²``, what the recorded features leave unexplained.
        hidden_share: least and most that hidden features have of it, ``τ²/s²``; equal where it is told or measured.
        source: where that comes from: ``"told"`` (the noise), ``"measured"`` (rows with the hidden columns) or
            ``"open"``; ``"none"`` where nothing is hidden.
        assumption: what the range assumes, as a sentence.
    """

    low: float
    high: float
    known: bool
    horizon: int
    residual_variance: float
    hidden_share: tuple[float, float]
    source: str
    assumption: str

    @property
    def shown(self) -> tuple[float, float]:
        """The range to display, in rounds.

        If something is hidden, a range that ends between 1 and ``LEAST_TOLD`` becomes 0 to ``LEAST_TOLD``.
        """
        small = self.source != "none" and 1.0 <= self.high < LEAST_TOLD
        return (0.0, LEAST_TOLD) if small else (self.low, self.high)

    @property
    def sentence(self) -> str:
        """The range in one sentence, or that it is not known."""
        if not self.known:
            return "How many online rounds this log is worth cannot be told from the log alone."
        low, high = (two_digits(end) for end in self.shown)
        if high < 1:
            return "This log is worth less than one online round."
        if low < 1:
            return f"This log is worth fewer than {high:,} online rounds."
        if low == high:
            return f"This log is worth about {counted(high, 'online round')}."
        return f"This log is worth between {low:,} and {high:,} online rounds."


def two_digits(number: float) -> int:
    """A whole number of two significant digits; more would suggest a precision that is not there."""
    if number < 1:
        return 0
    step: int = 10 ** max(0, int(np.floor(np.log10(number))) - 1)
    return round(number / step) * step


def worth_in_rounds(
    summary: ArmRegressions,
    noise: float | None = None,
    *,
    complete: ArmRegressions | None = None,
    horizon: int = HORIZON,
) -> Worth:
    """The range of online rounds that this log is worth.

    Args:
        summary: the log.
        noise: the standard deviation ``σ`` of a reward given the full context, if it is known.
        complete: a summary of rows that have the hidden columns too (the same log, or a part of it).
        horizon: ``T``, the rounds over which the advantage is counted.
    """
    if horizon < 1:
        raise InputError(f"horizon={horizon} must be at least one round.")
    shares, source = hidden_share(summary, noise, complete)
    s2 = summary.pooled_residual_variance
    words = _assumption(source, horizon)
    if summary.n_rows == 0 or summary.n_recorded == 0:
        return Worth(0.0, 0.0, True, horizon, s2, shares, source, words)
    if summary.n_arms < 2:
        return Worth(0.0, 0.0, True, horizon, s2, shares, source, "With one arm there is nothing to choose.")
    if s2 <= 0:
        # Without noise there is nothing to average out: one round for each weight that the log fixes.
        rounds = float(summary.n_recorded * summary.n_arms)
        return Worth(rounds, rounds, True, horizon, s2, shares, source, words)
    low, high = np.inf, 0.0
    for share in sorted(set(shares)):
        model = _model(summary, share) if complete is None else _measured_model(summary, complete, share)
        for information in _INFORMATION:
            rounds = _rounds(model, information, horizon)
            low, high = min(low, rounds), max(high, rounds)
    return Worth(float(low), float(high), source != "open", horizon, s2, shares, source, words)


def hidden_share(
    summary: ArmRegressions, noise: float | None = None, complete: ArmRegressions | None = None
) -> tuple[tuple[float, float], str]:
    """The part ``τ²/s²`` of the residual variance that hidden features cause, least and most, and how it is known.

    With rows that have the hidden columns it is measured: their regression on everything leaves ``σ²``. With a known
    noise it is ``1 − σ²/s²``. Otherwise it is open.
    """
    s2 = summary.pooled_residual_variance
    if summary.n_features == summary.n_recorded:
        return (0.0, 0.0), "none"
    if noise is None and complete is None:
        return _OPEN_SHARE, "open"
    if noise is not None:
        left, source = noise**2, "told"
    else:
        assert complete is not None
        if complete.n_recorded != summary.n_features:
            raise InputError(
                f"the complete rows record {complete.n_recorded} of {summary.n_features} columns; to measure what is "
                "hidden they need all of them."
            )
        left, source = complete.pooled_residual_variance, "measured"
    share = float(np.clip(1.0 - left / s2, 0.0, 0.999)) if s2 > 0 else 0.0
    return (share, share), source


# ------------------------------------------------------------------------------------------------- the model


@dataclass(frozen=True)
class _Model:
    """A world like the log's, in features scaled to unit spread (and centred where there is a constant).

    ``moments`` (d, d) is ``Σ``, recorded features first; ``variances`` (d,) the diagonal of ``Ω``; ``matrices``
    (K, L, d) are ``M_a = [I, B_a]``; ``grams`` (K, L, L) the log's; ``rows`` is ``N``; then ``σ²`` and ``s²``.
    """

    moments: np.ndarray
    variances: np.ndarray
    matrices: np.ndarray
    grams: np.ndarray
    rows: int
    noise_variance: float
    residual_variance: float


def _model(summary: ArmRegressions, share: float) -> _Model:
    """The world that the log suggests: hidden features correlated like recorded ones, strong enough for ``share``."""
    L, d, K, n = summary.n_recorded, summary.n_features, summary.n_arms, summary.n_rows
    T, varying = _scaling(summary)
    recorded = T.T @ summary.grams.sum(axis=0) @ T / n
    moments, matrix, left_over = _with_hidden(recorded, varying, d)
    s2 = summary.pooled_residual_variance
    variances = np.zeros(d)
    variances[:L] = _weight_variance(summary, T, np.zeros(L, dtype=int), ~varying)
    variances[L:] = share * s2 / max(left_over, 1e-12)
    grams = np.swapaxes(T, 0, 1)[None] @ summary.grams @ T[None]
    floor = 1e-6 * max(float(variances.max()), 1e-300)
    sigma2 = max((1.0 - share) * s2, 1e-12 * s2)
    return _Model(moments, np.maximum(variances, floor), np.broadcast_to(matrix, (K, L, d)), grams, n, sigma2, s2)


def _measured_model(summary: ArmRegressions, complete: ArmRegressions, share: float) -> _Model:
    """The world that complete rows show: covariances, ``B_a``, variances of recorded and of hidden weights."""
    L, d = summary.n_recorded, summary.n_features
    order = np.concatenate([summary.recorded, summary.hidden])
    T, varying = _scaling(complete)
    T = T[np.ix_(order, order)]
    scaled = np.swapaxes(T, 0, 1)[None] @ complete.grams[:, order][:, :, order] @ T[None]
    moments = scaled.sum(axis=0) / max(complete.n_rows, 1)
    # an arm of which no row is complete is taken to be like the average of the others
    of_arm = {label: own for label, own, n in zip(complete.arms, scaled, complete.counts, strict=True) if n > 0}
    scaled = np.stack([of_arm.get(label, moments) for label in summary.arms])
    inner = scaled[:, :L, :L] + 1e-9 * np.maximum(np.trace(scaled, axis1=1, axis2=2), 1e-300)[:, None, None] * np.eye(L)
    B = np.linalg.solve(inner, scaled[:, :L, L:])
    matrices = np.concatenate([np.broadcast_to(np.eye(L), (len(B), L, L)), B], axis=2)
    kinds = (np.arange(d) >= L).astype(int)
    back = np.argsort(order)
    variances = _weight_variance(complete, T[np.ix_(back, back)], kinds[back], ~varying)[order]
    To = T[:L, :L]
    grams = np.swapaxes(To, 0, 1)[None] @ summary.grams @ To[None]
    s2 = summary.pooled_residual_variance
    sigma2 = max((1.0 - share) * s2, 1e-12 * s2)
    return _Model(moments, variances, matrices, grams, summary.n_rows, sigma2, s2)


def _scaling(summary: ArmRegressions) -> tuple[np.ndarray, np.ndarray]:
    """``T`` (L, L) with ``x' = Tᵀx`` of unit spread, and which columns vary; centred where there is a constant."""
    L, n = summary.n_recorded, max(summary.n_rows, 1)
    pooled = summary.grams.sum(axis=0) / n
    means = (summary.means * summary.counts[:, None]).sum(axis=0) / n
    squares = np.diag(pooled)
    varying = squares - means**2 > 1e-9 * squares
    constant = np.flatnonzero(~varying & (squares > 0))
    T = np.eye(L)
    if len(constant):
        # x − mean for every feature that varies: the constant takes up the mean, so the model is the same.
        T[constant[0], varying] = -means[varying] / means[constant[0]]
        squares = np.diag(T.T @ pooled @ T)
    return T / np.where(squares > 0, np.sqrt(np.maximum(squares, 0.0)), 1.0), varying


def _with_hidden(recorded: np.ndarray, varying: np.ndarray, d: int) -> tuple[np.ndarray, np.ndarray, float]:
    """``Σ`` (d, d), ``M`` (L, d) and ``tr Σ_e`` if hidden features are as correlated as the recorded ones that vary."""
    L = len(recorded)
    m, k = d - L, int(varying.sum())
    inner = recorded[np.ix_(varying, varying)]
    correlation = float((inner.sum() - np.trace(inner)) / (k * (k - 1))) if k > 1 else 0.0
    correlation = min(0.99, max(correlation, -0.9 / max(d - 1, 1)))
    cross = np.zeros((L, m))
    cross[varying] = correlation
    # A small ridge, so that repeated columns do no harm.
    B = np.linalg.solve(recorded + 1e-9 * np.eye(L), cross) if L else np.zeros((0, m))
    left = (1 - correlation) * np.eye(m) + correlation - B.T @ cross
    values, vectors = np.linalg.eigh(0.5 * (left + left.T)) if m else (np.zeros(0), np.zeros((0, 0)))
    # The assumed correlations need not be positive definite; hidden features then get a little variance of their own.
    left = (vectors * np.maximum(values, 1e-3)) @ vectors.T
    moments = np.block([[recorded, cross], [cross.T, left + B.T @ recorded @ B]])
    return moments, np.hstack([np.eye(L), B]), float(np.trace(left))


def _weight_variance(summary: ArmRegressions, T: np.ndarray, kinds: np.ndarray, constant: np.ndarray) -> np.ndarray:
    """``Ω``'s diagonal (L,): the variance between arms of the weights of scaled features, one for each kind.

    The variance of the coefficients between arms minus the part that their standard errors explain; what all arms have
    in common does not matter for choosing among them. Columns that do not vary (the level of an arm) are a kind of
    their own. The result is at least a thousandth of the coefficients' mean square, so that noise cannot make it zero;
    without two arms to compare, half the mean square of the reward is taken to be signal, shared by the features.
    """
    L = summary.n_recorded
    arms = np.flatnonzero(summary.determined & (summary.counts > 0))
    reward = float((summary.factors[:, :, L] ** 2).sum() / max(summary.n_rows, 1))
    fallback = max(0.5 * reward / max(summary.n_features, 1), 1e-300)
    if len(arms) < 2:
        return np.full(L, fallback)
    back = np.linalg.inv(T)
    b = summary.least_squares(arms) @ back.T
    errors = np.zeros(L)
    for arm in arms:
        root = back @ np.linalg.inv(summary.factors[arm][:L, :L])
        errors += summary.residual_variances[arm] * (root**2).sum(axis=1) / len(arms)
    spread = b.var(axis=0, ddof=1) - errors
    out = np.empty(L)
    for columns in (constant, *(~constant & (kinds == kind) for kind in np.unique(kinds))):
        if columns.any():
            out[columns] = max(float(spread[columns].mean()), 1e-3 * float((b**2).mean())) or fallback
    return out


# ------------------------------------------------------------------------------------------ what rounds cost


def _rounds(model: _Model, information: float, horizon: int) -> float:
    """``n`` with the cold learner's cost of rounds ``n`` to ``n + T`` equal to the warm learner's first ``T``."""
    K, d = len(model.grams), len(model.moments)
    draws = np.random.default_rng(0).standard_normal((_CONTEXTS, d))
    # few rows leave moments that are not positive definite; a Cholesky factor, unlike eigenvectors, is unique
    values, vectors = np.linalg.eigh(model.moments)
    X = draws @ np.linalg.cholesky((vectors * np.maximum(values, 1e-6)) @ vectors.T).T
    prior = X**2 @ model.variances
    scale = _expected_maximum(K)
    ridge = np.diag(model.noise_variance / model.variances)

    def cost(V: np.ndarray) -> float:
        unknown = model.noise_variance * np.einsum("...ij,...ij->...i", X, np.linalg.solve(V, X.T).swapaxes(-1, -2))
        lost = np.sqrt(prior) - np.sqrt(np.maximum(prior - unknown, 0.0))
        return float(scale * lost.mean())

    times = np.concatenate([[0.0], np.geomspace(1.0, horizon, 16)])
    arms = _representative(model, d)
    tau2 = model.residual_variance - model.noise_variance
    evidence = np.swapaxes(model.matrices[arms], 1, 2) @ model.grams[arms] @ model.matrices[arms]
    warm = []
    for t in times:
        precision = model.noise_variance / (model.residual_variance + tau2 * model.rows / max(t, 1.0))
        warm.append(cost(_after(ridge + precision * evidence, information * t / K, model.moments)))
    target = float(np.trapezoid(warm, times))
    grid = np.concatenate([[0.0], np.geomspace(1.0, _LONGEST + horizon, 80)])
    # many at a time, in memory that is bounded
    parts = np.array_split(information * grid / K, math.ceil(len(grid) * d * d / _NUMBERS))
    colder = (_after(np.broadcast_to(ridge, (len(part), d, d)), part, model.moments) for part in parts)
    rates = np.array([cost(V) for some in colder for V in some])
    total = np.concatenate([[0.0], np.cumsum(np.diff(grid) * (rates[1:] + rates[:-1]) / 2)])

    def ahead(n: float) -> float:
        return float(np.interp(n + horizon, grid, total) - np.interp(n, grid, total))

    if ahead(0.0) <= target:
        return 0.0
    low, high = 0.0, _LONGEST
    for _ in range(60):
        middle = 0.5 * (low + high)
        low, high = (middle, high) if ahead(middle) > target else (low, middle)
    return 0.5 * (low + high)


def _after(V: np.ndarray, rounds: float | np.ndarray, moments: np.ndarray) -> np.ndarray:
    """``V`` (..., d, d) after ``m`` random rounds: ``V + mΣ/(1 + δ)``, ``δ = tr Σ(V + mΣ/(1 + δ))⁻¹``.

    rounds: one number, or one for each matrix (...)
    """
    delta = np.zeros(V.shape[:-2])
    for _ in range(12):
        gained = (rounds / (1.0 + delta))[..., None, None] * moments
        # damped iteration: undamped steps oscillate around the fixed point
        delta = 0.5 * (
            delta + np.trace(np.linalg.solve(V + gained, np.broadcast_to(moments, V.shape)), axis1=-2, axis2=-1)
        )
    return np.asarray(V + (rounds / (1.0 + delta))[..., None, None] * moments)


def _representative(model: _Model, d: int) -> np.ndarray:
    """Arms over which costs are averaged: all, or where there are many, some of each size."""
    K = len(model.grams)
    most = max(2, min(K, 400 // d))
    if most == K:
        return np.arange(K)
    by_size = np.argsort(np.trace(model.grams, axis1=1, axis2=2), kind="stable")
    return np.asarray(by_size[np.linspace(0, K - 1, most).astype(int)])


def _expected_maximum(count: int) -> float:
    """``c_K``: the expected maximum of ``K`` independent standard normal draws."""
    from scipy.special import ndtr  # here, since learners import this module and it takes a third of a second

    z = np.linspace(-9.0, 9.0, 2001)
    density = np.exp(-0.5 * z**2) / np.sqrt(2.0 * np.pi)
    return float(np.trapezoid(z * count * density * ndtr(z) ** (count - 1), z))


def _assumption(source: str, horizon: int) -> str:
    words = (
        f"That is: a learner without it would need about that many rounds before its next {horizon:,} cost as little "
        f"as the first {horizon:,} of one that starts from it. "
    )
    if source == "none":
        return words + (
            "It assumes that the old policy saw nothing that the log lacks, and that the old rows come from the world "
            "the learner will act in."
        )
    if source == "open":
        return (
            words
            + "It depends on how much of what the log leaves unexplained is noise and how much the hidden features' "
            "doing, and the log does not say: give the noise of a reward given everything if you know it (--noise, "
            "noise=), or rows that have the hidden columns."
        )
    told = (
        "the noise that you gave"
        if source == "told"
        else "the hidden columns, which these rows have: their share of the unexplained variance is measured"
    )
    return (
        words
        + f"It rests on {told}, and assumes that the old policy says in every round what it would do and that the "
        "log is honest."
    )
