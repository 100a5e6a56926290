"""``ConfoundedWorld``: a log that misleads whoever ignores what it hides.

In the paper's own world the regression ``B_a`` of hidden on recorded features hardly differs from arm to
arm, so assuming ``B = 0`` does as well as knowing it. Here a constant is recorded and the old policy looks
at the hidden features only, so ``E[x_h | a]`` differs from arm to arm and ends up in the arm's intercept.
"""

from __future__ import annotations

import numpy as np

from sidelight.errors import InputError
from sidelight.logs.schema.schema import Schema
from sidelight.worlds.linear import LinearWorld
from sidelight.worlds.protocol import Floats


class ConfoundedWorld(LinearWorld):
    """A constant feature, features on a sphere, and an old policy driven by the hidden ones alone.

    Contexts are ``x = (1, u)/√2`` with ``u`` uniform on the unit sphere of ``d − 1`` dimensions, so ``‖x‖ =
    1`` (``context_bound``). Weights are uniform on the sphere of radius ``weight_scale``, their first entry
    (the constant's) halved. The old policy is ``softmax(confounding · φ_a·x_h)``, where ``x_h`` are the last
    ``n_hidden`` features: a log with ``recorded = d − n_hidden`` (:attr:`default_recorded`) records nothing
    of what the policy saw. ``φ_a`` leans toward ``w_ah`` for even arms and away from it for odd ones (apart
    from a random third of it): half of the arms were given to those whom they suit, half to those whom they
    do not. Its length makes a logit's variance about 1 at ``confounding = 1``, whatever ``d``.

    The intercept of the short regression of arm ``a`` estimates ``w_a0 + √2 E[x_h | a]·w_ah``: too high for
    even arms, too low for odd ones, by an amount that does not shrink as the log grows. Whoever takes the
    log at its word (``B = 0``) keeps that error for ever. Measured with Algorithm 1 (determinant radius, λ =
    1, log of 10⁵ rows, 10⁴ rounds, seeds 0 to 2), regret with known R12 / with ``B = 0`` / of OFUL without
    the log: 124, 97, 127 / 501, 289, 615 / 221, 237, 214.

    Args:
        seed: Draws weights and policy.
        n_arms, n_features, n_hidden: ``K``, ``d``, ``m``.
        noise: ``σ``.
        confounding: Sharpness of the old policy: 0 is a uniformly random policy, whose log is not confounded
            at all.
        weight_scale: ``‖w_a‖`` before the constant's entry is halved; bounds ``S_w``.

    Example:
        >>> from sidelight.worlds.confounded import ConfoundedWorld
        >>> world = ConfoundedWorld(seed=0)
        >>> world.cross_moments(world.default_recorded).shape
        (10, 6, 4)
    """

    context_bound = 1.0

    def __init__(
        self,
        *,
        seed: int,
        n_arms: int = 10,
        n_features: int = 10,
        n_hidden: int = 4,
        noise: float = 0.3,
        confounding: float = 2.0,
        weight_scale: float = 1.0,
    ) -> None:
        if n_features < 2 or not 1 <= n_hidden < n_features or n_arms < 1:
            raise InputError(
                f"n_features={n_features}, n_hidden={n_hidden}, n_arms={n_arms}: a confounded world needs "
                "an arm, a recorded constant and at least one hidden feature (1 ≤ n_hidden < n_features)."
            )
        rng = np.random.default_rng(seed)
        weights = weight_scale * _sphere(n_arms, n_features, rng)
        weights[:, 0] *= 0.5
        names = ["constant", *(f"x{j}" for j in range(1, n_features))]
        super().__init__(weights, noise, schema=Schema(names, names, arms=range(n_arms)))
        self.n_hidden = n_hidden
        self.confounding = float(confounding)
        signs = np.where(np.arange(n_arms) % 2 == 0, 1.0, -1.0)[:, None]
        hidden_weights = weights[:, n_features - n_hidden :]
        leaning = signs * hidden_weights / np.sqrt((hidden_weights**2).sum(axis=1, keepdims=True))
        leaning = leaning + 0.5 * _sphere(n_arms, n_hidden, rng)
        leaning *= np.sqrt(2.0 * (n_features - 1)) / np.sqrt((leaning**2).sum(axis=1, keepdims=True))
        self.directions = np.zeros((n_arms, n_features))
        self.directions[:, n_features - n_hidden :] = leaning

    @property
    def default_recorded(self) -> int:
        """``L = d − n_hidden``: all that the old policy did not look at."""
        return self.n_features - self.n_hidden

    def contexts(self, n: int, rng: np.random.Generator) -> Floats:
        """``X`` ``(n, d)``: ``(1, u)/√2``."""
        X = np.ones((n, self.n_features))
        X[:, 1:] = _sphere(n, self.n_features - 1, rng)
        X /= np.sqrt(2.0)
        return X

    def behavior_logits(self, X: Floats) -> Floats:
        """``confounding · φ_a·x_h`` ``(n, K)``."""
        return X @ (self.confounding * self.directions).T


def _sphere(n: int, dimension: int, rng: np.random.Generator) -> Floats:
    """``n`` points uniform on the unit sphere, ``(n, dimension)``."""
    points = rng.standard_normal((n, dimension))
    points /= np.sqrt(np.einsum("nd,nd->n", points, points))[:, None]
    return points
