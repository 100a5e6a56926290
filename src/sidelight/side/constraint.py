"""The hard constraint: linear side information ``M_a w_a = b_a`` on each arm's weights."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from sidelight.arrays import as_numbers
from sidelight.errors import SideInformationError
from sidelight.linalg import Array, kernel_of, product, singular_values, structured_pseudo_inverse

if TYPE_CHECKING:
    from sidelight.logs.summary import LogSummary

__all__ = ["Reduction", "SideInformation", "unreduced"]


@dataclass(frozen=True)
class Reduction:
    """How each arm's problem in ``d`` dimensions becomes one in ``m``: ``w = anchor + N θ``, ``z = Nᵀx``.

    Everything here and in the kernels is in *internal order*: the recorded features first.

    Attributes:
        order: (d,)  internal position → position in the context.
        loadings: (K, R, m)  ``z = x_h − loadingsᵀ x[:R]`` where ``shifted``, else ``z = −loadingsᵀ x[:R]``.
            For ``M = [I, B]`` it is ``B`` with ``R = L``; for any other ``M`` it is ``−U`` with ``R = d``
            and columns of zeros where arms leave different numbers of dimensions.
        shifted: whether the last ``m`` features enter ``z`` as they are.
        anchors: (K, d)  a solution of ``M_a w = b_a``: ``[b_a; 0]`` or ``M_a†b_a``.
        dimensions: (K,)  ``m_a = d − rank M_a``.
    """

    order: NDArray[np.int64]
    loadings: Array
    shifted: bool
    anchors: Array
    dimensions: NDArray[np.int64]

    @property
    def n_arms(self) -> int:
        """``K``, the number of arms."""
        return int(self.loadings.shape[0])

    @property
    def n_features(self) -> int:
        """``d``, the number of features."""
        return int(self.order.shape[0])

    @property
    def size(self) -> int:
        """The largest ``m_a``: the length of every ``z``."""
        return int(self.loadings.shape[2])

    def basis(self, index: int) -> Array:
        """``N`` of one arm, in internal order.  (d, m)"""
        d, m = self.n_features, self.size
        N = np.zeros((d, m))
        N[: self.loadings.shape[1]] = -self.loadings[index]
        if self.shifted:
            N[d - m :] += np.eye(m)
        return N


def unreduced(n_arms: int, n_features: int, order: NDArray[np.int64] | None = None) -> Reduction:
    """No side information: ``z = x``, ``w = θ``.  With it every learner here is plain OFUL."""
    return Reduction(
        order=np.arange(n_features) if order is None else np.asarray(order, dtype=np.int64),
        loadings=np.zeros((n_arms, 0, n_features)),
        shifted=True,
        anchors=np.zeros((n_arms, n_features)),
        dimensions=np.full(n_arms, n_features, dtype=np.int64),
    )


class SideInformation:
    """Linear side information ``M_a w_a = b_a``, known exactly (section 4 of the paper).

    Dependent rows are dropped; rows that contradict each other (no ``w`` satisfies them) are an error
    that names the arm.  Arms may have different numbers of rows, none included.

    Args:
        M: K matrices ``M_a``, each ``(L_a, d)``.
        b: K vectors ``b_a``, each ``(L_a,)``.
        arms: labels for error messages; default ``0 … K−1``.
        rtol: singular values of ``M_a`` below ``rtol`` times the largest count as dependent rows;
            default ``max(L_a, d)`` times machine precision.

    Attributes:
        M, b: the rows as given, as arrays.
        ranks: (K,)  the number of independent rows of each ``M_a``; ``m_a = d − ranks[a]``.
        n_arms, n_features: K and d.

    Examples:
        >>> import sidelight as sl
        >>> side = sl.SideInformation(M=[[[1.0, 0.0, 2.0]], [[0.0, 1.0, 0.0]]], b=[[3.0], [1.0]])
        >>> side.ranks.tolist(), side.n_features
        ([1, 1], 3)
    """

    def __init__(
        self,
        M: Sequence[ArrayLike] | Array,
        b: Sequence[ArrayLike] | Array,
        *,
        arms: Sequence[Any] | None = None,
        rtol: float | None = None,
    ) -> None:
        matrices, vectors = _arrays(M, "M"), _arrays(b, "b")
        if not matrices or len(matrices) != len(vectors):
            raise SideInformationError(
                f"M has {len(matrices)} matrices and b has {len(vectors)} vectors; "
                "give one matrix (L_a, d) and one vector (L_a,) for every arm, and at least one arm."
            )
        self.arms: tuple[Any, ...] = tuple(range(len(matrices))) if arms is None else tuple(arms)
        if len(self.arms) != len(matrices):
            raise SideInformationError(f"{len(self.arms)} arm labels for {len(matrices)} matrices.")
        widths = {m.shape[1] if m.ndim == 2 else -1 for m in matrices}
        if len(widths) != 1 or -1 in widths:
            shapes = ", ".join(str(m.shape) for m in matrices[:5])
            raise SideInformationError(
                f"The matrices of M must all be (L_a, d) with the same d; got shapes {shapes}"
                f"{' …' if len(matrices) > 5 else ''}. An arm without side information has shape (0, d)."
            )
        d = widths.pop()
        bases, anchors, ranks = [], [], []
        for arm, m, v in zip(self.arms, matrices, vectors, strict=True):
            if v.shape != (m.shape[0],):
                raise SideInformationError(
                    f"Arm {arm!r}: M has {m.shape[0]} rows and b has shape {v.shape}; "
                    f"b must be a vector of {m.shape[0]}."
                )
            if not (np.isfinite(m).all() and np.isfinite(v).all()):
                raise SideInformationError(f"Arm {arm!r}: M or b has a value that is not finite.")
            # Rows in different units must not decide which of them is dropped: scale each to norm one.
            norms = np.linalg.norm(m, axis=1)
            scale = np.where(norms > 0, norms, 1.0)
            rank, U, anchor, contradiction = kernel_of(m / scale[:, None], v / scale, rtol)
            tolerance = 1e-8 * (1.0 + float(np.sqrt(np.square(v / scale).sum())))
            if contradiction > tolerance:
                raise SideInformationError(
                    f"Arm {arm!r}: its {m.shape[0]} rows have rank {rank} and contradict each other; the "
                    f"closest w misses them by {contradiction:.3g} (rows scaled to norm one). No w satisfies "
                    "M w = b: remove the rows that disagree, or use a soft constraint (FusedOFUL)."
                )
            bases.append(U)
            anchors.append(anchor)
            ranks.append(rank)
        self.M, self.b = matrices, vectors
        self.ranks: NDArray[np.int64] = np.array(ranks, dtype=np.int64)
        loadings = np.zeros((len(matrices), d, int(max(d - r for r in ranks))))
        for a, U in enumerate(bases):
            loadings[a, :, : U.shape[1]] = -U
        if not self.ranks.any():
            self.reduction = unreduced(len(matrices), d)
        else:
            self.reduction = Reduction(
                order=np.arange(d),
                loadings=loadings,
                shifted=False,
                anchors=np.array(anchors),
                dimensions=d - self.ranks,
            )
        self.schema: Any = None
        self.summary: LogSummary | None = None

    @classmethod
    def from_log(cls, summary: LogSummary, cross_moments: ArrayLike) -> SideInformation:
        """Proposition 1 with known cross moments: ``M_a = [I, R11(a)⁻¹R12(a)]``, ``b_a`` from the log.

        Args:
            summary: the log.
            cross_moments: (K, L, m)  ``R12(a) = E[x_o x_hᵀ | a]`` under the old policy.
        """
        from sidelight.hidden.known import KnownCrossMoments

        return cls.structured(summary, KnownCrossMoments(summary, cross_moments).regression())

    @classmethod
    def structured(cls, summary: LogSummary, B: ArrayLike) -> SideInformation:
        """``M_a = [I, B_a]`` and ``b_a`` of the log, without any pseudo-inverse.

        Args:
            summary: the log; every arm must determine its ``b_a``.
            B: (K, L, m)  the regression of the hidden features on the recorded ones, per arm.
        """
        from sidelight.logs.summary import hidden_blocks, one_summary

        one_summary(summary, "SideInformation")
        B = hidden_blocks(summary, B, "B", SideInformationError)
        K, L, m = B.shape
        side = cls.__new__(cls)
        side.arms = tuple(summary.arms)
        side.schema = summary.schema
        side.summary = summary
        order = np.concatenate([summary.recorded, summary.hidden]).astype(np.int64)
        anchors = np.zeros((K, L + m))
        anchors[:, :L] = summary.coefficients
        side.reduction = Reduction(
            order=order,
            loadings=B,
            shifted=True,
            anchors=anchors,
            dimensions=np.full(K, m, dtype=np.int64),
        )
        inverse = np.argsort(order)
        side.M = [np.concatenate([np.eye(L), B[a]], axis=1)[:, inverse] for a in range(K)]
        side.b = [anchors[a, :L].copy() for a in range(K)]
        side.ranks = np.full(K, L, dtype=np.int64)
        return side

    @property
    def n_arms(self) -> int:
        """``K``, the number of arms."""
        return self.reduction.n_arms

    @property
    def n_features(self) -> int:
        """``d``, the number of features."""
        return self.reduction.n_features

    def pseudo_inverse(self, index: int) -> Array:
        """``M_a†`` in the context's order, (d, L_a): for bounds and checks, never needed to decide."""
        r = self.reduction
        if not self.ranks[index]:
            return np.zeros((self.n_features, len(self.b[index])))
        if r.shifted:
            P = structured_pseudo_inverse(r.loadings[index])
            out = np.empty_like(P)
            out[r.order] = P
            return out
        left, sigma, right = singular_values(self.M[index])
        k = int(self.ranks[index])
        return product(right[:k].T / sigma[:k], left[:, :k].T)

    def _repr_html_(self) -> str:
        from sidelight.drawing.notebook import card

        rows = [
            [str(arm), str(int(rank)), str(self.n_features - int(rank))]
            for arm, rank in zip(self.arms, self.ranks, strict=True)
        ]
        return card(repr(self), (), "M w = b, arm by arm", ["arm", "fixed", "open"], rows)

    def __repr__(self) -> str:
        low, high = int(self.ranks.min()), int(self.ranks.max())
        ranks = f"{low}" if low == high else f"{low} to {high}"
        return f"SideInformation({self.n_arms} arms, {ranks} of {self.n_features} dimensions fixed)"


def _arrays(values: Any, name: str) -> list[Array]:
    """A list or a stack of arrays as a list of float arrays, one for every arm; an error that names what is none."""
    try:
        return [as_numbers(value, f"{name}[{a}]") for a, value in enumerate(values)]
    except TypeError:
        raise SideInformationError(f"{name} must have one array for every arm; got {values!r:.200}.") from None
