"""Stage 2, with answers of the old policy and no reward at all: how far hidden features can move a policy's value.

At full contexts ``x = (x_o, x_h)`` the old policy says what it would do.  That tells ``B_a``, the regression of hidden
on recorded features under arm ``a``, ``Σ_e(a)``, the covariance of what it leaves, and ``g_a = B_aᵀℓ_a − h_a``.  What
stays open is only which part ``τ_a² ≤ s_a²`` of the log's residual variance the hidden features explain:

    |V_s − V| ≤ T = Σ_a τ_a D_a,      D_a = ‖Σ_e(a)^{-1/2} g_a‖.

``T`` is estimated; ``φ`` is its influence function, an entry for each answer, so that ``sd(φ)/√n`` is its error.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np
from scipy.linalg import solve_triangular
from scipy.special import chdtrc, ndtri

from sidelight.judging.answer_rows import Answers
from sidelight.judging.lines import Line, line_unknown
from sidelight.judging.policies import Lacking, Requested, suggested, take
from sidelight.judging.population import Population
from sidelight.judging.row_sums import MOST_LEVERAGE
from sidelight.judging.sensitivity import level_of_each, range_quantile
from sidelight.judging.valuing import Estimate
from sidelight.linalg import Array
from sidelight.logs.reduce.moments import triangular_factor
from sidelight.logs.reduce.rank import independent_columns
from sidelight.logs.schema.schema import Schema

__all__ = ["HiddenBias", "ToldBy", "bias_of", "largest_total", "line_of_answers", "other_population"]


@dataclass(frozen=True)
class HiddenBias:
    """How far hidden features can move the value of a policy.

    Attributes:
        total: ``T``.
        influence: (n,) ``φ`` of every answer, mean about 0.
        log_variance: the part of the variance of ``T`` that comes from the log's ``s_a²``.
        freedom: effective number of answers minus number of columns, for the scarcest arm that the policy takes.
        problem: why it cannot be told, or ``None``.
    """

    total: float
    influence: Array
    log_variance: float
    freedom: float
    problem: str | None = None

    @property
    def variance(self) -> float:
        """The variance of ``T``: the part from the answers plus the part from the log's residual variances."""
        n = len(self.influence)
        return float(self.influence.var(ddof=1)) / n + self.log_variance if n > 1 else math.inf


def bias_of(
    answers: Answers,
    schema: Schema,
    population: Population,
    taken: np.ndarray,
    kurtosis: Array,
    reward_share: float | None,
) -> HiddenBias:
    """``T`` of a policy in one population of the log.

    Args:
        answers: of the old policy.
        schema: of the population: which features it recorded.
        population: its arms' residual variances and shares.
        taken: (n,) what the policy takes at the answers' contexts.
        kurtosis: (K,) of the arms' residuals in the log.
        reward_share: the part of ``E ε²`` that hidden features explain at most; ``None``: all of it.
    """
    n, w = len(answers), answers.weights
    x_o = population.select(answers.recorded(schema))
    x_h = _independent(x_o, answers.hidden(schema))
    m = x_h.shape[1]
    used = [a for a in range(len(population.arms)) if (taken == a).any()]
    if m == 0:
        return HiddenBias(0.0, np.zeros(n), 0.0, math.inf)
    D = np.zeros(len(population.arms))
    parts: dict[int, Array] = {}
    freedom = math.inf
    for a in used:
        share = w * answers.chances[:, a]
        told = float(share.sum() ** 2 / (share @ share)) if share.any() else 0.0
        found = _one_arm(x_o, x_h, share, w * (taken == a), told)
        if isinstance(found, str):
            return HiddenBias(math.nan, np.zeros(n), math.nan, math.nan, f"{found} arm {population.arms[a]!r}")
        D[a], parts[a] = found
        freedom = min(freedom, told - x_o.shape[1] - m)
    tau = np.sqrt(population.variances(float(population.shares @ kurtosis)))
    if reward_share is not None:
        tau = largest_total(D, population.shares, tau, reward_share * population.epsilon_squares)
    influence = np.zeros(n)
    log_variance = 0.0
    for a in used:
        influence += tau[a] * parts[a]
        # Var ŝ = s²(κ − 1)/4n; where τ is bounded by a share of E ε² that scales alike
        log_variance += (tau[a] * D[a]) ** 2 * max(kurtosis[a] - 1.0, 0.0) / (4.0 * population.counts[a])
    return HiddenBias(float(tau @ D), influence, log_variance, freedom)


def _one_arm(x_o: Array, x_h: Array, share: Array, chosen: Array, told: float) -> tuple[float, Array] | str:
    """``D_a`` and the part of ``φ`` that belongs to an arm, or what is wrong with its answers.

    Args:
        x_o: (n, L) recorded columns.
        x_h: (n, m) hidden ones.
        share: (n,) weights of the answers that name the arm, 0 for others.
        chosen: (n,) weights of the answers where the policy takes it, 0 for others.
        told: the effective number of answers behind ``share``.
    """
    n, L, m = len(x_o), x_o.shape[1], x_h.shape[1]
    if told < L + m + 2:
        return f"only {told:.0f} answers, and at least {L + m + 2} are needed, for"
    root = np.sqrt(share)
    factor = triangular_factor(np.column_stack([x_o, x_h]) * root[:, None], careful=False)
    if len(independent_columns(factor)) < L + m:
        return "columns that the answers do not tell apart under"
    R, S = factor[:L, :L], factor[L:, L:]
    e = x_h - x_o @ solve_triangular(R, factor[:L, L:])
    z = solve_triangular(R, x_o.T, trans="T").T
    # Σ_e on its degrees of freedom, as a factor: Σ_e = SᵀS/(n_a − L)·(n_a/Σω)
    scale = share.sum() * (1.0 - L / told)
    ell = chosen @ x_o / n
    g = -(chosen @ e) / n
    u = solve_triangular(S, g, trans="T") * math.sqrt(scale)
    D = float(np.linalg.norm(u))
    direction = u / D if D > 0 else u
    v = solve_triangular(S, direction) * math.sqrt(scale)
    ve = e @ v
    own = ve / (1.0 - np.minimum(share * np.einsum("nl,nl->n", z, z), MOST_LEVERAGE))
    alpha = n * (z @ solve_triangular(R, ell, trans="T"))
    influence = share * own * alpha - chosen * ve - 0.5 * D * (n / share.sum()) * share * (own**2 - 1.0)
    return D, influence


def _independent(x_o: Array, x_h: Array) -> Array:
    """The hidden columns that are not linear combinations of recorded and earlier hidden ones."""
    if x_h.shape[1] == 0:
        return x_h
    L = x_o.shape[1]
    kept = independent_columns(triangular_factor(np.column_stack([x_o, x_h]), careful=False))
    return x_h[:, [j - L for j in kept.tolist() if j >= L]]


def largest_total(D: Array, shares: Array, most: Array, budget: float) -> Array:
    """(K,) the ``τ`` that makes ``Σ τ_aD_a`` largest under ``Σ P_aτ_a² ≤ budget`` and ``τ_a ≤ most_a``.

    ``τ_a = min(most_a, λD_a/P_a)``: what is gained by one more unit of the budget is the same for all arms below their
    limit.
    """
    tau = np.where(D > 0, most, 0.0)
    if float(shares @ tau**2) <= budget:
        return tau
    slope = np.divide(D, shares, out=np.zeros_like(D), where=shares > 0)
    low, high = 0.0, float((most[slope > 0] / slope[slope > 0]).max())
    for _ in range(200):
        middle = (low + high) / 2.0
        spent = float(shares @ np.minimum(tau, middle * slope) ** 2)
        low, high = (middle, high) if spent <= budget else (low, middle)
    return np.asarray(np.minimum(tau, low * slope))


def taken_at(answers: Answers, policy: Requested, estimate: Estimate, schemas: Sequence[Schema]) -> list[np.ndarray]:
    """What a policy takes at the answers' contexts, for each part of its estimate.

    Raises:
        Lacking: a function asks for a feature that a part of the log does not have.
    """
    out: list[np.ndarray] = []
    for i, (population, _) in enumerate(estimate.parts):
        schema = schemas[i]
        if policy.kind == "arm":
            out.append(np.full(len(answers), population.arms.index(policy.rule)))
        elif policy.kind == "function":
            columns = answers.columns([feature.name for feature in schema.recorded_features])
            out.append(take(policy, columns, len(answers), population.arms))
        else:
            # parts come in pairs, the halves of an era: each is valued under the choice of the other
            other = estimate.parts[i + 1 if i % 2 == 0 else i - 1][0]
            taken, _ = suggested(other, population, answers.recorded(schema))
            out.append(taken)
    return out


def other_population(answers: Answers, schema: Schema, population: Population) -> list[str]:
    """Signs that the answers come from another policy or other contexts than the log; false alarms in 1 of 1,000."""
    told = float(answers.weights.sum() ** 2 / (answers.weights @ answers.weights))
    found: list[str] = []
    seen = answers.weights @ answers.chances / answers.weights.sum()
    expected = population.shares
    kept = expected > 0
    # both shares are estimates: one from the effective number of answers, one from the log's rows
    statistic = float(((seen - expected)[kept] ** 2 / expected[kept]).sum()) / (1.0 / told + 1.0 / population.n_rows)
    if chdtrc(int(kept.sum()) - 1, statistic) < 0.0005:
        worst = int(np.abs(seen - expected).argmax())
        found.append(
            f"the old policy answers {population.arms[worst]!r} in {seen[worst]:.1%} of the contexts that it was asked "
            f"about, and took it in {expected[worst]:.1%} of the log"
        )
    x_o = population.select(answers.recorded(schema))
    means = answers.weights @ x_o / answers.weights.sum()
    deviation = np.sqrt(np.maximum(population.scale**2 - population.mean**2, 0.0))
    varies = deviation > 1e-9 * population.scale
    if varies.any():
        error = np.sqrt(1.0 / told + 1.0 / population.n_rows) * deviation[varies]
        z = np.abs(means - population.mean)[varies] / error
        if z.max() > -ndtri(0.0005 / (2 * varies.sum())):
            name = [name for name, there in zip(population.names, varies, strict=True) if there][int(z.argmax())]
            found.append(
                f"the mean of {name!r} in the contexts of the answers is {z.max():.1f} standard errors from the log's"
            )
    return found


def line_of_answers(base: Line, policy: Requested, estimate: Estimate, told: ToldBy) -> Line:
    """Stage 2 for one policy.

    Args:
        base: its line of stage 1.
        policy: what it does.
        estimate: its short value.
        told: the answers and what the log knows of its residuals.
    """
    answers, level = told.answers, level_of_each(told.level, base.together)
    if estimate.problem is not None:
        return line_unknown(base.policy, "answers", base.role, len(answers), estimate.problem, base.arm, base.together)
    total, log_variance, freedom, influence = 0.0, 0.0, estimate.freedom, np.zeros(len(answers))
    schemas = [told.schemas[id(population)] for population, _ in estimate.parts]
    try:
        choices = taken_at(answers, policy, estimate, schemas)
    except Lacking as error:
        why = f"it looks at {error.args[0]!r}, of which the answers hold only what derives from it"
        return line_unknown(base.policy, "answers", base.role, len(answers), why, base.arm, base.together)
    for (population, _), schema, taken in zip(estimate.parts, schemas, choices, strict=True):
        kurtosis = told.kurtosis[id(population)]
        found = bias_of(answers, schema, population, taken, kurtosis, told.reward_share)
        if found.problem is not None:
            return line_unknown(base.policy, "answers", base.role, len(answers), found.problem, base.arm, base.together)
        share = population.n_rows / estimate.rows
        total += share * found.total
        influence += share * found.influence
        log_variance += share**2 * found.log_variance
        freedom = min(freedom, found.freedom)
    variance = HiddenBias(total, influence, log_variance, freedom).variance
    deviation, gain = math.sqrt(estimate.variance + variance), estimate.gain
    # the truth lies within ± T of the short gain, and can be missed at one end only
    width = 2.0 * total / deviation if deviation > 0.0 else math.inf
    half = range_quantile(level, freedom, width) * deviation + total
    return Line(
        base.policy,
        "answers",
        estimate.value,
        gain,
        gain - half,
        gain + half,
        None,
        deviation,
        total,
        len(answers),
        role=base.role,
        arm=base.arm,
        size=estimate.size,
        together=base.together,
    )


@dataclass(frozen=True)
class ToldBy:
    """What stage 2 needs beside a policy.

    Attributes:
        answers: of the old policy.
        schemas: population (by identity) → its schema.
        kurtosis: population (by identity) → (K,) of its arms' residuals.
        level: of the intervals.
        reward_share: as stated, or ``None``.
    """

    answers: Answers
    schemas: Mapping[int, Schema]
    kurtosis: Mapping[int, Array]
    level: float
    reward_share: float | None
