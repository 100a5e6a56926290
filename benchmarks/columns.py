"""What gaps in contexts and splines cost and what weighting clicks brings: the tables of ``docs/how-to/columns.md``.

    python -m benchmarks.columns gaps      # gaps of 10 and 30 % in a recorded feature, a hidden one, all of them
    python -m benchmarks.columns clicks    # rewards of 0 and 1 at rates of 1, 5, 20 and 50 %
    python -m benchmarks.columns splines   # splines of all features where effects are straight, and where they bend
    python -m benchmarks.columns products  # products with hidden features, where effects are straight and where not
    python -m benchmarks.columns surfaces  # curved surfaces fitted to public data, with the terms that the log proposes
    python -m benchmarks.columns trials    # smooth surfaces of randomised trials (pip install --no-deps lifelines)
    python -m benchmarks.columns log-rows  # what weighting the log's rows of clicks by their variance would bring
    python -m benchmarks.columns pass      # time of the log pass with splines and interactions, per encoded column

Runs are paired: the same contexts, noise, answers and coins for every learner of a seed.
"""

from __future__ import annotations

import argparse
import itertools
import time
from collections.abc import Callable
from typing import Any

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

import sidelight as sl
from benchmarks.curved_trials import TRIALS
from benchmarks.rivals.tables import INSTALLED, Surfaces, standardised
from sidelight.learners.rates import BINARY_VARIANCE
from sidelight.learners.rounds import play_rounds
from sidelight.worlds.linear import LinearWorld, draw_indices

LOG_ROWS = 20_000
#: rounds before widths are compared with errors
WARM_UP = 50


class CorrelatedWorld(LinearWorld):
    """A constant and normal features of correlations 0.6^|i − j|, shuffled; the old policy looks at the last three."""

    context_bound = 10.0

    def __init__(self, seed: int, n_arms: int = 5, n_features: int = 8, n_hidden: int = 3) -> None:
        rng = np.random.default_rng([seed, 77])
        names = ["constant", *(f"x{i}" for i in range(1, n_features))]
        weights = rng.normal(size=(n_arms, n_features)) / np.sqrt(n_features)
        super().__init__(weights, 0.5, schema=sl.Schema(names, names, arms=range(n_arms)))
        at = rng.permutation(n_features - 1)
        self.covariance = 0.6 ** np.abs(at[:, None] - at)
        self._factor = np.linalg.cholesky(self.covariance)
        self._logits = np.zeros((n_arms, n_features))
        self._logits[:, n_features - n_hidden :] = 1.5 * rng.normal(size=(n_arms, n_hidden)) / np.sqrt(n_hidden)

    def contexts(self, n: int, rng: np.random.Generator) -> NDArray[np.float64]:
        """(n, d)"""
        return np.column_stack([np.ones(n), rng.normal(size=(n, self.n_features - 1)) @ self._factor.T])

    def behavior_logits(self, X: NDArray[np.float64]) -> NDArray[np.float64]:
        """(n, K)"""
        return X @ self._logits.T

    def expected(self, X: NDArray[np.float64]) -> NDArray[np.float64]:
        """``E[x | what is there]`` of contexts with gaps, NaN.  (n, d)"""
        out = X.copy()
        for row, x in enumerate(X):
            gone = np.isnan(x[1:])
            if gone.any():
                C, there = self.covariance, ~gone
                known = np.linalg.solve(C[np.ix_(there, there)], x[1:][there])
                out[row, 1:][gone] = C[np.ix_(gone, there)] @ known
        return out


class ClickWorld(LinearWorld):
    """Rewards of 0 and 1 whose rates are straight in five features between −1 and 1, around the arms' own rates."""

    context_bound = 3.0

    def __init__(self, seed: int, rate: float, n_arms: int = 5, n_features: int = 6, n_hidden: int = 2) -> None:
        rng = np.random.default_rng([seed, 88])
        slopes = rng.normal(size=(n_arms, n_features - 1))
        slopes *= 0.9 / np.abs(slopes).sum(axis=1, keepdims=True)
        rates = np.minimum(rate * np.exp(rng.uniform(-0.5, 0.5, n_arms)), 0.5)
        names = ["constant", *(f"x{i}" for i in range(1, n_features))]
        weights = rates[:, None] * np.column_stack([np.ones(n_arms), slopes])
        super().__init__(weights, float(np.sqrt(rate)), schema=sl.Schema(names, names, arms=range(n_arms)))
        self._logits = np.zeros((n_arms, n_features))
        self._logits[:, n_features - n_hidden :] = 2.0 * rng.normal(size=(n_arms, n_hidden))

    def contexts(self, n: int, rng: np.random.Generator) -> NDArray[np.float64]:
        """(n, d)"""
        return np.column_stack([np.ones(n), rng.uniform(-1, 1, (n, self.n_features - 1))])

    def behavior_logits(self, X: NDArray[np.float64]) -> NDArray[np.float64]:
        """(n, K)"""
        return X @ self._logits.T

    def _logged(self, n: int, rng: np.random.Generator) -> tuple[Any, Any, Any]:
        X = self.contexts(n, rng)
        arms = draw_indices(self.behavior_probabilities(X), rng)
        return X, arms, (rng.random(n) < (X * self.weights[arms]).sum(axis=1)).astype(np.float64)


def gap_run(seed: int, rounds: int, share: float, columns: list[int], without: int | None = None) -> list[float]:
    """Regret against the best arm for all features, the limit of it, regret for what was there, and two ``z²``.

    The limit is what somebody loses who knows the weights and how features go together, and always plays the best arm
    for what was there; the next is regret against that arm.  ``z²`` is of estimates and of rewards.

    Args:
        seed: of world, log and rounds.
        rounds: how many.
        share: of values that are missing.
        columns: of which features.
        without: a feature that the learner is never given.
    """
    world = CorrelatedWorld(seed)
    d, L, K = world.n_features, world.n_features - 3, world.n_arms
    log = world.sample_log(LOG_ROWS, L, np.random.default_rng([seed, 1]))
    X = world.contexts(rounds, np.random.default_rng([seed, 2]))
    answers = world.behavior_actions(X, np.random.default_rng([seed, 3]))
    noise = world.noise * np.random.default_rng([seed, 4]).normal(size=rounds)
    gone = np.random.default_rng([seed, 5]).random(X.shape) < share
    gone[:, [j for j in range(d) if j not in columns or j == 0]] = False
    seen = np.where(gone, np.nan, X)
    means, given = world.mean_rewards(X), world.expected(seen) @ world.weights.T
    schema = world.schema(L).with_missing("impute" if share else "refuse")
    if without is not None:
        names = [feature.name for feature in schema.features]
        kept = [j for j in range(d) if j != without]
        schema = sl.Schema([names[j] for j in kept], [names[j] for j in kept if j < L], arms=schema.arms)
        seen = np.ascontiguousarray(X[:, kept])
    learner = sl.FusedOFUL(sl.BehaviorQueries(sl.summarize_log(log, schema)))
    whole, there, errors, surprises = 0.0, 0.0, [], []
    limit = float((means.max(axis=1) - means[np.arange(rounds), given.argmax(axis=1)]).sum())
    for t, x in enumerate(seen):
        learner.observe_behavior(x, int(answers[t]))
        a = learner.decide(x, rng=np.random.default_rng([seed, 6, t])).arm
        reward = float(means[t, a] + noise[t])
        whole += means[t].max() - means[t, a]
        there += given[t].max() - given[t, a]
        if t >= WARM_UP and without is None:
            estimates, widths = learner.scores(x)
            b = t % K
            errors.append(((estimates[b] - given[t, b]) / widths[b]) ** 2)
            added = 0.0 if learner.gaps is None else learner._gap_variance(learner.gaps.complete(x), a)
            surprises.append((reward - estimates[a]) ** 2 / (learner.noises[a] ** 2 + added + widths[a] ** 2))
        learner.observe(x, a, reward)
    mean = [float(np.mean(values)) if values else np.nan for values in (errors, surprises)]
    return [float(whole), limit, float(there), *mean]


def gaps(rounds: int, seeds: range) -> None:
    """Print the table of gaps."""
    base = np.array([gap_run(seed, rounds, 0.0, []) for seed in seeds])
    print(f"{rounds} rounds, seeds {seeds.start} to {seeds.stop - 1}; regret without gaps {base[:, 0].mean():.1f}, ")
    print(f"z² {base[:, 3].mean():.2f} of estimates, {base[:, 4].mean():.2f} of rewards\n")
    print("| gaps in | share | regret | limit | for what was there | never given | z² of estimates | z² of rewards |")
    print("|---|---|---|---|---|---|---|---|")
    for name, columns in (("a recorded feature", [2]), ("a hidden feature", [6]), ("all features", list(range(1, 8)))):
        never = "–"
        if len(columns) == 1:
            blind = np.mean([gap_run(seed, rounds, 0.0, [], without=columns[0])[0] for seed in seeds])
            never = f"{blind / base[:, 0].mean():.2f}"
        for share in (0.1, 0.3):
            found = np.array([gap_run(seed, rounds, share, columns) for seed in seeds])
            limit = found[:, 1].mean() / base[:, 0].mean()
            cells = [name, f"{100 * share:.0f} %", _ratio(base[:, 0], found[:, 0]), f"{limit:.2f}"]
            z = found[:, 3:].mean(axis=0)
            cells += [_ratio(base[:, 0], found[:, 2]), never, f"{z[0]:.2f}", f"{z[1]:.2f}"]
            print("| " + " | ".join(cells) + " |", flush=True)


class TrueRates(sl.FusedOFUL):
    """Weights rounds of clicks by their true variance, which nobody knows: what weighting could bring at most."""

    world: ClickWorld

    def _least_rate(self) -> float:
        return 0.0  # rounds are weighted here, and nowhere else

    def _learn_noise(self, units: Any) -> None:
        assert self.automatic is not None
        self.automatic.variance = BINARY_VARIANCE
        self.automatic.variances = np.full(self.n_arms, BINARY_VARIANCE)

    def _observe(self, x: NDArray[np.float64], index: int, reward: float, weight: float = 1.0) -> None:
        rate = float(self.world.mean_rewards(x[None])[0, index])
        super()._observe(x, index, reward, weight * BINARY_VARIANCE / (rate * (1.0 - rate)))


def click_run(seed: int, rounds: int, rate: float, weights: str) -> tuple[float, float]:
    """Regret, and the mean ``z²`` of estimates at fresh contexts after each tenth of the rounds but the first.

    weights: ``none`` (one variance for each arm), ``rates`` (as the learner expects them) or ``true``
    """
    world = ClickWorld(seed, rate)
    L = world.n_features - 2
    log = world.sample_log(LOG_ROWS, L, np.random.default_rng([seed, 1]))
    X = world.contexts(rounds, np.random.default_rng([seed, 2]))
    means = world.mean_rewards(X)
    answers = world.behavior_actions(X, np.random.default_rng([seed, 3]))
    rewards = (np.random.default_rng([seed, 4]).random((rounds, 1)) < means).astype(np.float64)
    schema = sl.Schema.from_dict({**world.schema(L).to_dict(), "binary": weights != "none"})
    kind = TrueRates if weights == "true" else sl.FusedOFUL
    learner = kind(sl.BehaviorQueries(sl.summarize_log(log, schema)))
    if isinstance(learner, TrueRates):
        learner.world = world
    played, errors = [], []
    step = rounds // 10
    for start in range(0, rounds, step):
        part = slice(start, start + step)
        if start:
            fresh = world.contexts(40, np.random.default_rng([seed, 7, start]))
            scores = np.array([learner.scores(x) for x in fresh])
            errors.append(np.mean(((scores[:, 0] - world.mean_rewards(fresh)) / scores[:, 1]) ** 2))
        draws = np.random.default_rng([seed, 6, start])
        arms = play_rounds(learner, X[part], rewards[part], answers[part], draws)
        played.append(_one_by_one(learner, X[part], rewards[part], answers[part], draws) if arms is None else arms)
    arms = np.concatenate(played)
    return float((means.max(axis=1) - means[np.arange(rounds), arms]).sum()), float(np.mean(errors))


def _one_by_one(
    learner: sl.FusedOFUL,
    X: NDArray[np.float64],
    rewards: NDArray[np.float64],
    answers: NDArray[np.int64],
    rng: np.random.Generator,
) -> NDArray[np.int64]:
    """What ``play_rounds`` does, for a learner whose rounds are not compiled."""
    arms = np.empty(len(X), dtype=np.int64)
    for t, x in enumerate(X):
        learner.observe_behavior(x, int(answers[t]))
        arms[t] = learner.decide(x, rng=rng).arm
        learner.observe(x, arms[t], float(rewards[t, arms[t]]))
    return arms


def clicks(rounds: int, seeds: range) -> None:
    """Print the table of clicks."""
    print(f"{rounds} rounds, seeds {seeds.start} to {seeds.stop - 1}\n")
    print(
        "| rate | regret, one variance for each arm | weighted | ratio | with true variances | z² before | weighted |"
    )
    print("|---|---|---|---|---|---|---|")
    for rate in (0.01, 0.05, 0.2, 0.5):
        kinds = ("none", "rates", "true")
        found = np.array([[click_run(seed, rounds, rate, weights) for weights in kinds] for seed in seeds])
        regrets, z = found[:, :, 0], found[:, :, 1].mean(axis=0)
        means = regrets.mean(axis=0)
        cells = [f"{100 * rate:.0f} %", f"{means[0]:.1f}", f"{means[1]:.1f}"]
        cells += [_ratio(regrets[:, 0], regrets[:, k]) for k in (1, 2)]
        print("| " + " | ".join([*cells, f"{z[0]:.2f}", f"{z[1]:.2f}"]) + " |", flush=True)


def _ratio(before: NDArray[np.float64], after: NDArray[np.float64]) -> str:
    """The ratio of means over seeds, with its standard error by the delta method.  (n,) each"""
    ratio = after.mean() / before.mean()
    error = np.std(after - ratio * before) / before.mean() / np.sqrt(len(before))
    return f"{ratio:.2f} ± {error:.2f}"


def log_rows(rounds: int, seeds: range) -> None:
    """Print what weighting a log's rows by one over their variance would bring, from many rows and the true rates.

    With ``v`` the variance of a reward around the line ``x_o·b``, ordinary least squares has the covariance
    ``G⁻¹(Σvx_ox_oᵀ)G⁻¹``, where ``s²G⁻¹`` is claimed; weights ``ω = 1/p(1 − p)`` of the line's own rates give
    ``A⁻¹(Σω²vx_ox_oᵀ)A⁻¹`` with ``A = Σωx_ox_oᵀ``.  Both as the variance of predicted rates over the log's rows.
    """
    print(f"{rounds} rows for each log, seeds {seeds.start} to {seeds.stop - 1}\n")
    print("| rate | variance of predicted rates, weighted / not | not weighted / claimed | in the worst direction |")
    print("|---|---|---|---|")
    for rate in (0.01, 0.05, 0.2, 0.5):
        found = []
        for seed in seeds:
            world = ClickWorld(seed, rate)
            L, rng = world.n_features - 2, np.random.default_rng([seed, 9])
            X = world.contexts(rounds, rng)
            arms = draw_indices(world.behavior_probabilities(X), rng)
            for a in range(world.n_arms):
                observed, rates = X[arms == a, :L], X[arms == a] @ world.weights[a]
                G = observed.T @ observed
                line = observed @ np.linalg.solve(G, observed.T @ rates)
                v = rates * (1.0 - rates) + (rates - line) ** 2
                inverse = np.linalg.inv(G)
                plain = inverse @ (observed.T * v) @ observed @ inverse
                shown = np.clip(line, 0.1 * rate, 1.0 - 0.1 * rate)
                omega = 1.0 / (shown * (1.0 - shown))
                A = np.linalg.inv((observed.T * omega) @ observed)
                weighted = A @ (observed.T * (omega**2 * v)) @ observed @ A
                off = np.linalg.eigvals(G @ plain).real / v.mean()
                found.append([np.trace(G @ weighted) / np.trace(G @ plain), off.mean(), off.max()])
        cells = [f"{100 * rate:.0f} %", *(f"{value:.3f}" for value in np.mean(found, axis=0))]
        print("| " + " | ".join(cells) + " |", flush=True)


def log_pass(rows: int, seeds: range) -> None:
    """Print processor time of the log pass for each encoded column, plain and with splines and interactions."""
    print(f"{rows} rows, the least of {len(seeds)} times, processor time, knots and levels given\n")
    print("| schema | encoded columns | seconds | for each column | ratio |")
    print("|---|---|---|---|---|")
    rng = np.random.default_rng(seeds.start)
    numbers = {f"x{i}": rng.normal(size=rows) for i in range(8)}
    stage = np.array(["I", "II", "III", "IV"])[rng.integers(4, size=rows)]
    log = pa.table({**numbers, "stage": stage, "arm": rng.integers(3, size=rows), "reward": rng.normal(size=rows)})
    names = list(numbers)
    categories = {"stage": ["I", "II", "III", "IV"]}
    bends = [sl.Spline(name, knots=[-1.5, -0.5, 0.5, 1.5]) for name in names]
    acts = [sl.Product("stage", name) for name in names[:4]] + [sl.Product("x0", "x1"), sl.Product("x2", "x3")]
    base = 0.0
    for title, derived in (("columns alone", []), ("splines", bends), ("splines and interactions", [*bends, *acts])):
        schema = sl.Schema(
            [*names, "stage"],
            [*names, "stage"],
            arms=range(3),
            intercept=True,
            categories=categories,
            derived=derived,
        )
        taken = []
        for _ in seeds:
            start = time.process_time()
            summary = sl.summarize_log(log, schema)
            taken.append(time.process_time() - start)
        each = min(taken) / summary.n_recorded
        base = base or each
        cells = [title, str(summary.n_recorded), f"{min(taken):.2f}", f"{1000 * each:.1f} ms", f"{each / base:.2f}"]
        print("| " + " | ".join(cells) + " |", flush=True)


def spline_run(seed: int, rounds: int, bent: list[int], added: str, together: tuple[int, int] | None = None) -> float:
    """Regret of a learner with or without derived features.

    Args:
        seed: of world, log and rounds.
        rounds: how many.
        bent: features whose effects have a U-shape of as much variance as a straight effect.
        added: ``splines`` of every feature, ``products`` of the hidden ones with all others and among them, or nothing.
        together: two features whose product has an effect.
    """
    world = CorrelatedWorld(seed)
    d, L = world.n_features, world.n_features - 3
    names = [f"x{i}" for i in range(1, d)]
    bends = np.random.default_rng([seed, 8]).normal(size=(world.n_arms, d)) / np.sqrt(d)
    bends[:, [j for j in range(d) if j not in bent]] = 0.0

    acting = np.random.default_rng([seed, 9]).normal(size=world.n_arms) / np.sqrt(d)

    def means(X: NDArray[np.float64]) -> NDArray[np.float64]:
        out = world.mean_rewards(X) + ((X * X - 1.0) / np.sqrt(2.0)) @ bends.T
        return out if together is None else out + (X[:, together[0]] * X[:, together[1]])[:, None] * acting

    rng = np.random.default_rng([seed, 1])
    X = world.contexts(LOG_ROWS, rng)
    arms = draw_indices(world.behavior_probabilities(X), rng)
    paid = means(X)[np.arange(LOG_ROWS), arms] + world.noise * rng.normal(size=LOG_ROWS)
    log = {name: X[:, j + 1] for j, name in enumerate(names[: L - 1])} | {"arm": arms, "reward": paid}
    derived: list[Any] = []
    if added == "splines":
        derived = [sl.Spline(name, knots=[-1.5, -0.5, 0.5, 1.5]) for name in names]
    elif added == "products":
        derived = [sl.Product(a, b) for a, b in itertools.combinations(names, 2) if b in names[L - 1 :]]
    schema = sl.Schema(names, names[: L - 1], arms=range(world.n_arms), intercept=True, derived=derived)
    learner = sl.FusedOFUL(sl.BehaviorQueries(sl.summarize_log(log, schema)))
    X = world.contexts(rounds, np.random.default_rng([seed, 2]))
    answers = world.behavior_actions(X, np.random.default_rng([seed, 3]))
    expected = means(X)
    rewards = expected + world.noise * np.random.default_rng([seed, 4]).normal(size=(rounds, 1))
    assert learner.schema is not None
    Z = learner.schema.encode_many({name: X[:, j + 1] for j, name in enumerate(names)})
    played = play_rounds(learner, Z, rewards, answers, np.random.default_rng([seed, 6]))
    return float((expected.max(axis=1) - expected[np.arange(rounds), played]).sum())


def splines(rounds: int, seeds: range) -> None:
    """Print the table of splines."""
    print(f"{rounds} rounds, seeds {seeds.start} to {seeds.stop - 1}\n")
    print("| effects | regret, straight | regret, splines of all features | ratio |")
    print("|---|---|---|---|")
    for name, bent in (("straight", []), ("a recorded one bends", [2]), ("a hidden one bends", [6])):
        found = np.array([[spline_run(seed, rounds, bent, added) for added in ("", "splines")] for seed in seeds])
        means = found.mean(axis=0)
        print(f"| {name} | {means[0]:.1f} | {means[1]:.1f} | {_ratio(found[:, 0], found[:, 1])} |", flush=True)


def products(rounds: int, seeds: range) -> None:
    """Print the table of products with hidden features."""
    print(f"{rounds} rounds, seeds {seeds.start} to {seeds.stop - 1}\n")
    print("| effects | regret, straight | regret, products with hidden features | ratio |")
    print("|---|---|---|---|")
    pairs = {"straight": None, "a recorded and a hidden one act together": (2, 6), "two hidden ones do": (5, 6)}
    for name, pair in pairs.items():
        found = np.array([[spline_run(seed, rounds, [], added, pair) for added in ("", "products")] for seed in seeds])
        means = found.mean(axis=0)
        print(f"| {name} | {means[0]:.1f} | {means[1]:.1f} | {_ratio(found[:, 0], found[:, 1])} |", flush=True)


def surface_run(seed: int, rounds: int, surfaces: Surfaces) -> list[float]:
    """Regret with columns alone, with the terms that ``propose_terms`` finds in the log, with these and splines of all
    hidden numbers, and with every term there is; how many terms were found; and what curves leave to be gained.

    Contexts are rows of the data, drawn with replacement.  The last third of the columns is hidden, and the old policy
    looks at those alone.  Every term: splines of all numbers and products of all pairs, hidden ones too.  The last two
    are the regret of somebody who knows the surfaces' best straight approximation, and the best one with every term.
    """
    X, means, noise = surfaces
    X = standardised(X)
    p, K, h = X.shape[1], means.shape[1], X.shape[1] // 3
    names, rng = [f"x{i}" for i in range(p)], np.random.default_rng([seed, 1])
    logits = X[:, p - h :] @ (1.5 * rng.normal(size=(h, K)) / np.sqrt(h))
    chances = np.exp(logits - logits.max(axis=1, keepdims=True))
    chances /= chances.sum(axis=1, keepdims=True)

    def drawn(n: int) -> tuple[Any, Any, Any]:
        at = rng.integers(len(X), size=n)
        rewards = means[at] + (noise or 0.0) * rng.normal(size=(n, 1))
        return at, draw_indices(chances[at], rng), rewards

    at, arms, rewards = drawn(LOG_ROWS)
    log = {name: X[at, j] for j, name in enumerate(names[: p - h])}
    log |= {"arm": arms, "reward": rewards[np.arange(LOG_ROWS), arms]}
    straight = sl.Schema(names, names[: p - h], arms=range(K), intercept=True)
    terms = [proposal.term for proposal in sl.propose_terms(log, straight)]
    varied = [j for j in range(p) if len(np.unique(X[:, j])) > 10]
    quantiles = {names[j]: np.unique(np.quantile(X[:, j], [0.05, 0.35, 0.65, 0.95])) for j in varied}
    bends = {name: sl.Spline(name, knots=tuple(knots)) for name, knots in quantiles.items() if len(knots) == 4}
    of_hidden = [bends[name] for name in names[p - h :] if name in bends]
    every = [*bends.values(), *(sl.Product(a, b) for a, b in itertools.combinations(names, 2))]
    at, answers, rewards = drawn(rounds)
    out, limits = [], []
    for added in ([], terms, [*terms, *of_hidden], every):
        schema = straight.with_derived(added)
        learner = sl.FusedOFUL(sl.BehaviorQueries(sl.summarize_log(log, schema)))
        assert learner.schema is not None
        Z = learner.schema.encode_many({name: X[at, j] for j, name in enumerate(names)})
        played = play_rounds(learner, Z, rewards, answers, np.random.default_rng([seed, 6]))
        out.append(float((means[at].max(axis=1) - means[at][np.arange(rounds), played]).sum()))
        Z = learner.schema.encode_many({name: X[:, j] for j, name in enumerate(names)})
        best = (Z @ np.linalg.lstsq(Z, means, rcond=None)[0]).argmax(axis=1)
        limits.append(rounds * float((means.max(axis=1) - means[np.arange(len(X)), best]).mean()))
    return [*out, float(len(terms)), limits[0], limits[-1]]


def surfaces(rounds: int, seeds: range) -> None:
    """Print the table of surfaces fitted to public data."""
    _surface_table(rounds, seeds, {data: INSTALLED[data]() for data in ("insurance", "doses", "travel", "parties")})


def trials(rounds: int, seeds: range) -> None:
    """Print the table of smooth surfaces fitted to randomised trials, of those whose package is installed."""
    found = {name: surfaces for name, load in TRIALS.items() if (surfaces := load()) is not None}
    if len(found) < len(TRIALS):
        print(f"Left out: {', '.join(set(TRIALS) - set(found))} (pip install --no-deps lifelines)\n")
    _surface_table(rounds, seeds, found)


def _surface_table(rounds: int, seeds: range, data: dict[str, Surfaces]) -> None:
    print(f"{rounds} rounds, seeds {seeds.start} to {seeds.stop - 1}\n")
    print(
        "| data | regret, columns alone | terms | with those proposed | and splines of hidden numbers | every term "
        "| straight surfaces known | every term known |"
    )
    print("|---|---|---|---|---|---|---|---|")
    for name, surfaces in data.items():
        found = np.array([surface_run(seed, rounds, surfaces) for seed in seeds])
        means = found.mean(axis=0)
        ratios = [_ratio(found[:, 0], found[:, k]) for k in (1, 2, 3)]
        limits = [f"{value / means[0]:.2f}" for value in means[5:]]
        print("| " + " | ".join([name, f"{means[0]:.1f}", f"{means[4]:.1f}", *ratios, *limits]) + " |", flush=True)


def main() -> None:
    """One of the tables."""
    tables: dict[str, tuple[Callable[[int, range], None], int, int]] = {
        "gaps": (gaps, 1_000, 32),
        "clicks": (clicks, 3_000, 120),
        "splines": (splines, 2_000, 128),
        "products": (products, 2_000, 64),
        "surfaces": (surfaces, 4_000, 6),
        "trials": (trials, 4_000, 6),
        "log-rows": (log_rows, 100_000, 12),
        "pass": (log_pass, 200_000, 3),
    }
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("table", choices=tables)
    parser.add_argument("--rounds", type=int, help="rounds, or rows of a log")
    parser.add_argument("--seeds", type=int)
    parser.add_argument("--first-seed", type=int, default=1000)
    options = parser.parse_args()
    run, rounds, seeds = tables[options.table]
    first = options.first_seed
    run(options.rounds or rounds, range(first, first + (options.seeds or seeds)))


if __name__ == "__main__":
    main()
