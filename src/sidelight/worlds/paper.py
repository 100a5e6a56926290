"""``PaperWorld``: the synthetic environment of the paper's experiments, as printed and as released.

The text leaves the noise open and the authors' released experiment differs from the text, so there are two
presets; :meth:`PaperWorld.preset` lists what differs.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

import numpy as np

from sidelight.errors import InputError
from sidelight.worlds.linear import LinearWorld
from sidelight.worlds.protocol import Floats


@dataclass(frozen=True)
class _Preset:
    """One row of settings: where contexts and weights come from, the offsets of the old policy, the noise."""

    contexts: Literal["uniform", "gaussian"]
    weights: Literal["box", "root_box"]
    offsets: bool
    noise: float


PRESETS = {
    "paper_text": _Preset(contexts="uniform", weights="box", offsets=False, noise=0.05),
    "authors_code": _Preset(contexts="gaussian", weights="root_box", offsets=True, noise=1.0),
}


class PaperWorld(LinearWorld):
    """The paper's experiment: contexts on the unit sphere, linear rewards, an old policy ``softmax(φ_a·x +
    c_a)``.

    Usually made by :meth:`preset`. ``context_bound`` (``S_x``) is 1.

    Args:
        weights: ``w_a``, ``(K, d)``.
        directions: ``φ_a``, ``(K, d)``.
        offsets: ``c_a``, ``(K,)``.
        noise: ``σ``.
        contexts: ``"uniform"``: uniform in ``[0, 1]^d``, scaled to norm 1. ``"gaussian"``: ``N(0, I)``,
            scaled to norm 1.
        sharpness: Multiplies the policy's logits: 0 is a uniformly random policy, large values a
            deterministic one.

    Example:
        >>> import numpy as np
        >>> from sidelight.worlds.paper import PaperWorld
        >>> world = PaperWorld.preset("paper_text", seed=1, n_arms=3, n_features=5)
        >>> world.sample_log(4, 2, np.random.default_rng(0)).column_names
        ['x0', 'x1', 'arm', 'reward']
    """

    context_bound = 1.0

    def __init__(
        self,
        weights: Floats,
        directions: Floats,
        offsets: Floats,
        noise: float,
        *,
        contexts: Literal["uniform", "gaussian"] = "uniform",
        sharpness: float = 1.0,
    ) -> None:
        super().__init__(weights, noise)
        if contexts not in ("uniform", "gaussian"):
            raise InputError(f"contexts={contexts!r}; choose 'uniform' or 'gaussian'.")
        self.directions = np.array(directions, dtype=np.float64)
        self.offsets = np.array(offsets, dtype=np.float64)
        if self.directions.shape != self.weights.shape or self.offsets.shape != (self.n_arms,):
            raise InputError(
                f"directions {self.directions.shape} and offsets {self.offsets.shape} do not fit weights "
                f"{self.weights.shape}; pass (K, d) and (K,)."
            )
        self.sharpness = float(sharpness)
        self._contexts: Literal["uniform", "gaussian"] = contexts

    @classmethod
    def preset(
        cls,
        name: Literal["paper_text", "authors_code"],
        *,
        seed: int,
        n_arms: int = 30,
        n_features: int = 30,
        noise: float | None = None,
        sharpness: float = 1.0,
    ) -> PaperWorld:
        """The experiment of the text or of the authors' released code.

        =============  ==================================  =======================================
        setting        ``paper_text``                      ``authors_code``
        =============  ==================================  =======================================
        weights        uniform in ``[0, 1/d]^d``           uniform in ``[0, 1]^d``, over ``√d``
        contexts       uniform in ``[0, 1]^d``, norm 1     ``N(0, I)``, norm 1
        old policy     ``softmax(φ_a·x)``, φ ~ N(0, I)     the same with offsets ``c_a ~ U[0, 1]``
        noise σ        0.05 (the text names none; with     1
                       σ = 1 no L beats OFUL by much)
        =============  ==================================  =======================================

        ``seed`` draws weights and policy, which the paper keeps fixed across its runs; ``noise=None`` is the
        preset's. ``φ``'s distribution is open in the text; it is the released code's here.
        """
        if name not in PRESETS:
            raise InputError(f"preset {name!r} does not exist; choose one of {', '.join(map(repr, PRESETS))}.")
        if n_arms < 1 or n_features < 1:
            raise InputError(f"n_arms={n_arms}, n_features={n_features}: both must be at least 1.")
        chosen = PRESETS[name]
        rng = np.random.default_rng(seed)
        uniform = rng.random((n_arms, n_features))
        scale = n_features if chosen.weights == "box" else np.sqrt(n_features)
        directions = rng.standard_normal((n_arms, n_features))
        offsets = rng.random(n_arms) if chosen.offsets else np.zeros(n_arms)
        return cls(
            uniform / scale,
            directions,
            offsets,
            chosen.noise if noise is None else noise,
            contexts=chosen.contexts,
            sharpness=sharpness,
        )

    def contexts(self, n: int, rng: np.random.Generator) -> Floats:
        """``X`` ``(n, d)`` of norm 1."""
        shape = (n, self.n_features)
        X = rng.random(shape) if self._contexts == "uniform" else rng.standard_normal(shape)
        X /= np.sqrt(np.einsum("nd,nd->n", X, X))[:, None]
        return X

    def behavior_logits(self, X: Floats) -> Floats:
        """``sharpness·(φ_a·x + c_a)`` ``(n, K)``."""
        return X @ (self.sharpness * self.directions).T + self.sharpness * self.offsets
