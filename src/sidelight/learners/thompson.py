"""Thompson sampling over the fused posterior."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from sidelight.errors import InputError
from sidelight.learners.fused.learner import FusedOFUL
from sidelight.learners.protocol import Allowed, Context, Decision
from sidelight.linalg import Array

__all__ = ["FusedThompson"]

#: nodes of the integral behind a propensity
_NODES = 257
_STEP = np.linspace(-5.0, 5.0, 17)
#: an arm whose deviation is a smaller part of another's counts as known for certain beside it
SURE = 1e-9


class FusedThompson(FusedOFUL):
    """Draws each arm's value from its posterior and takes the best draw.

    The posterior is ``FusedOFUL``'s: ``x·w_a ~ N(x·ŵ_a, σ²‖x‖²_{V⁻¹})``, and ``alpha`` scales its deviation.  Arms are
    independent, so drawing one number per arm is the same as drawing all weights.  ``scores`` gives posterior mean and
    deviation; a decision's propensity is the exact probability that its arm has the highest draw (by quadrature).

    Arguments are those of ``FusedOFUL``.  Sampling tries doubtful arms by itself, so there are no trials on top; the
    tests of the logs are the same.  Draws by the whole deviation explore more than changing contexts need, so its
    regret is higher than ``FusedOFUL``'s; ``alpha=0.5`` takes most of that back (docs/explanation/choosing.md).

    Examples:
        >>> import numpy as np, sidelight as sl
        >>> world = sl.worlds.ConfoundedWorld(seed=0)
        >>> log = world.sample_log(5_000, recorded=6, rng=np.random.default_rng(1))
        >>> learner = sl.FusedThompson(sl.BehaviorQueries(sl.summarize_log(log, world.schema(6))))
        >>> x = world.contexts(1, np.random.default_rng(2))[0]
        >>> decision = learner.decide(x, rng=np.random.default_rng(3))
        >>> 0.0 < decision.propensity <= 1.0
        True
    """

    def decide(
        self, x: Context, allowed: Allowed = None, rng: np.random.Generator | None = None, default: Any = None
    ) -> Decision:
        """The arm of highest draw among ``allowed`` at ``x``.

        ``rng`` draws, by default the learner's own.  Without either the draw depends on the context and the rounds so
        far, so a repeated question has the same answer.  ``default`` is ignored: only ``FusedOFUL`` keeps a floor.
        """
        if self.ledger is not None:
            raise InputError("FusedThompson keeps no floor: use FusedOFUL(…, floor=…).")
        context, still = self._read(x), self._still()
        means, deviations = still.scores(context)
        mask = still._mask(allowed)
        source = self.rng if rng is None else rng
        if source is None:
            source = np.random.default_rng(int(self._draw_from(context) * 2**53))
        draws = means + deviations * source.standard_normal(len(means))
        a = int(np.where(mask, draws, -np.inf).argmax())
        shown = self._shown(float(means[a]))
        return Decision(still.arms[a], shown, float(deviations[a]), self._propensity(a, means, deviations, mask))

    def propensities(self, x: Context, allowed: Allowed = None) -> Array:
        """(K,)  The chance that each arm has the highest draw at ``x``, by quadrature: they sum to 1 within 1e-3."""
        still = self._still()
        means, deviations = still.scores(x)
        mask = still._mask(allowed)
        return np.array([self._propensity(a, means, deviations, mask) if mask[a] else 0.0 for a in range(len(means))])

    @staticmethod
    def _propensity(a: int, means: Array, deviations: Array, mask: NDArray[np.bool_]) -> float:
        """``∫ φ(z) Π_{b≠a} Φ((m_a + s_a z − m_b)/s_b) dz``."""
        from scipy.special import ndtr

        others = np.flatnonzero(mask & (np.arange(len(means)) != a))
        mean, deviation = means[a], deviations[a]
        # arms whose draw varies by almost nothing beside this one's: only the highest of their means matters
        certain = deviations[others] <= SURE * deviation
        sure, others = others[certain], others[~certain]
        if deviation == 0.0:
            # decisions give a tie to the first
            first = not ((means[sure] > mean) | ((means[sure] == mean) & (sure < a))).any()
            return float(ndtr((mean - means[others]) / deviations[others]).prod()) if first else 0.0
        if not len(others) and not len(sure):
            return 1.0
        least = float(np.max(means[sure], initial=-np.inf))
        low = max((least - mean) / deviation, -8.0)
        if low >= 8.0:
            return 0.0
        # arms whose highest conceivable draw is below another's lowest never matter
        lowest = float(np.max(means[others] - 7.0 * deviations[others], initial=-np.inf))
        others = others[means[others] + 7.0 * deviations[others] >= lowest]
        z = np.linspace(low, 8.0, _NODES)
        # an arm that is known far better is a step in the integrand: nodes of its own, on its own scale
        narrow = others[deviations[others] < 0.5 * deviation]
        steps = ((means[narrow] - mean) / deviation)[:, None] + (deviations[narrow] / deviation)[:, None] * _STEP
        z = np.sort(np.concatenate([z, steps[(steps > low) & (steps < 8.0)]]))
        below = ndtr((mean + deviation * z[:, None] - means[others]) / deviations[others])
        integrand = np.exp(-0.5 * z * z) / np.sqrt(2.0 * np.pi) * below.prod(axis=1)
        return float(min(max(np.trapezoid(integrand, z), 0.0), 1.0))
