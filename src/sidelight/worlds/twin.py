"""``TwinWorld``: a different world whose log is the same. Why a log alone does not identify the weights.

**What is proven.** Let a world have any law of contexts ``x = (x_o, x_h)``, any old policy ``π_b``, any
noise, and weights ``w_a``. For every invertible ``T`` ``(m, m)`` and every ``C`` ``(m, L)`` define its twin
by::

    x_h' = T x_h + C x_o,     w_ah' = T⁻ᵀ w_ah,     w_ao' = w_ao − Cᵀ T⁻ᵀ w_ah,     π_b'(a | x') = π_b(a | x)

for all arms at once. Then ``(x_o, a, r)`` has the same distribution in both, and ``w_a' ≠ w_a`` for every
arm with ``T⁻ᵀw_ah ≠ w_ah`` or ``CᵀT⁻ᵀw_ah ≠ 0``.

**Proof.** With ``H = [[I, 0], [C, T]]`` the definitions read ``x' = Hx``, ``w_a' = H⁻ᵀw_a``. Draw one ``x``,
one ``a`` from ``π_b(· | x)`` and one noise ``η``, and give them to both worlds. ``x'`` then has the twin's
law, and given ``x'`` the arm has the law ``π_b(· | H⁻¹x') = π_b'(· | x')``, so this is a draw from the twin.
The rows agree: ``x_o' = x_o``, the arm is the same, and ``x'·w_a' = xᵀHᵀH⁻ᵀw_a = x·w_a``, so the reward is
the same. ∎

``T = I`` moves weight from recorded to hidden features and leaves ``w_h`` alone; ``C = 0`` rescales and
mixes the hidden ones alone. Nothing in the log speaks for one world against the other, and online, where
``x`` and ``x'`` are seen, they want different actions at the same vector.

**What the paper's proposition adds, and what is wrong with its proof.** It also asks for the same ``π_b(a |
x)`` as a function of ``x`` in both worlds, and leaves both laws of contexts free. The printed proof writes
``w^o`` where it means the hidden part, and its two-point law depends on the arm, so it serves one arm only.
As stated it holds, but trivially: under any law with ``x_h`` in a hyperplane ``v·x_h = 0``, adding a multiple
of ``v`` to every ``w_ah`` changes nothing. It holds for a given law whenever ``π_b(· | Hx) = π_b(· | x)``,
for example if the policy looked at recorded features only (:meth:`TwinWorld.keeps_policy` checks it). It
does **not** hold for every given law and policy: with ``L = 0``, ``m = 1``, two arms with ``w_1 = w_2 = 1``,
``x_h ~ N(0, 1)`` and the known policy ``π_b(1 | x) = 1/(1 + e^{−φx})``, the two arms' densities of ``r``
(deconvolved from the noise) have the ratio ``e^{φr}``, which no other pair of weights produces. So what
keeps the log silent is that it shows neither the hidden features' law nor how the policy used them: exactly
what queries to the policy in full contexts supply.
"""

from __future__ import annotations

import numpy as np
from scipy.linalg import expm, svd

from sidelight.errors import InputError
from sidelight.logs.schema.features import Category
from sidelight.worlds.linear import LinearWorld
from sidelight.worlds.protocol import Floats, Recorded


class TwinWorld(LinearWorld):
    """The twin of ``world`` for logs that record ``recorded``; see the module's text for the statement and
    its proof.

    From generators in the same state the two worlds draw the same log, row by row, up to rounding.

    Args:
        world: Any linear world.
        recorded: What the log records; the twin is one for this set of features.
        shift: ``C`` ``(m, L)``, in the order of the encoded hidden and recorded features; zero if left out.
        mixing: ``T`` ``(m, m)``, invertible; the identity if left out.

    Example:
        >>> import numpy as np
        >>> from sidelight.worlds.paper import PaperWorld
        >>> from sidelight.worlds.twin import TwinWorld
        >>> world = PaperWorld.preset("paper_text", seed=1, n_arms=3, n_features=4)
        >>> twin = TwinWorld(world, recorded=2, shift=np.ones((2, 2)))
        >>> logs = [w.sample_log(5, 2, np.random.default_rng(0))["reward"].to_numpy() for w in (world, twin)]
        >>> bool(np.allclose(*logs)), bool(np.allclose(world.weights, twin.weights))
        (True, False)
    """

    def __init__(
        self,
        world: LinearWorld,
        recorded: Recorded,
        *,
        shift: Floats | None = None,
        mixing: Floats | None = None,
    ) -> None:
        schema = world.schema(recorded)
        hidden, kept = schema.hidden_index, schema.recorded_index
        m, L = len(hidden), len(kept)
        categories = [f.name for f in schema.features if isinstance(f, Category) and f.name not in schema.recorded]
        if categories:
            raise InputError(
                f"hidden features {', '.join(categories)} are categories; a twin mixes hidden features, which only "
                "numbers allow. Record them, or hide numbers instead."
            )
        C = np.zeros((m, L)) if shift is None else np.array(shift, dtype=np.float64)
        T = np.eye(m) if mixing is None else np.array(mixing, dtype=np.float64)
        if C.shape != (m, L) or T.shape != (m, m):
            raise InputError(
                f"shift {C.shape} and mixing {T.shape} do not fit {L} recorded and {m} hidden features: pass "
                f"C {(m, L)} and T {(m, m)}."
            )
        H = np.eye(world.n_features)
        H[np.ix_(hidden, kept)] = C
        H[np.ix_(hidden, hidden)] = T
        if (condition := _condition(T)) > 1e8:
            raise InputError(f"mixing has condition number {condition:.1e}; it must be invertible.")
        self.world = world
        self.recorded = schema.recorded
        self.map = H
        self._inverse = np.linalg.inv(H)
        super().__init__(world.weights @ self._inverse, world.noise, schema=schema)

    @classmethod
    def random(cls, world: LinearWorld, recorded: Recorded, *, seed: int, strength: float = 1.0) -> TwinWorld:
        """A twin with random ``C`` and ``T``: entries of ``C``, and of ``T − I``, of size ``strength/√m``."""
        schema = world.schema(recorded)
        m, L = len(schema.hidden_index), len(schema.recorded_index)
        rng = np.random.default_rng(seed)
        scale = strength / np.sqrt(max(m, 1))
        shift = scale * rng.standard_normal((m, L))
        mixing = expm(scale * rng.standard_normal((m, m)))  # the exponential of a matrix is always invertible
        return cls(world, recorded, shift=shift, mixing=mixing)

    def contexts(self, n: int, rng: np.random.Generator) -> Floats:
        """``X' = XHᵀ`` ``(n, d)``."""
        mapped: Floats = self.world.contexts(n, rng) @ self.map.T
        return mapped

    def original(self, X: Floats) -> Floats:
        """``X = X'H⁻ᵀ`` ``(n, d)``: the contexts as the other world sees them."""
        unmapped: Floats = self._check(X) @ self._inverse.T
        return unmapped

    def behavior_logits(self, X: Floats) -> Floats:
        """The other world's logits at ``H⁻¹x'``."""
        return self.world.behavior_logits(self.original(X))

    def second_moments(self) -> tuple[Floats, Floats]:
        """``P(a)``, which is the other world's, and ``H E[xxᵀ | a] Hᵀ``."""
        if self._moments is None:
            shares, moments = self.world.second_moments()
            self._moments = shares, self.map @ moments @ self.map.T
        return self._moments

    def keeps_policy(self, X: Floats, tolerance: float = 1e-9) -> bool:
        """Whether both worlds' policies are the same function of the vector ``x`` at the rows of ``X`` ``(n,
        d)``.

        Where they are, the pair meets the paper's proposition as printed.
        """
        here, there = self.behavior_probabilities(X), self.world.behavior_probabilities(X)
        return bool(np.abs(here - there).max() <= tolerance)


def _condition(T: Floats) -> float:
    """The largest singular value of ``T`` ``(m, m)`` over the smallest; 1 where ``m = 0``, infinite if singular."""
    if not T.size:
        return 1.0
    if not np.isfinite(T).all():
        return np.inf
    singular = svd(T, compute_uv=False, lapack_driver="gesvd")
    return float(singular[0] / singular[-1]) if singular[-1] > 0 else np.inf
