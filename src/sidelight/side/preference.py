"""Which contexts the old policy gave to each arm, and so in which direction the arm's weights may lie.

A policy that gives arm ``a`` to whom it suits (a doctor), or to whom it suits least, chooses by ``x·w_a``: among the
contexts that an arm was given, ``x`` is shifted along ``w_a``.  So the shift says where ``w_a`` may point, before the
arm was ever played.  With ``Σ`` the covariance of contexts the arm's *preference* is

    z_a = Σ⁻¹(E[x | a] − E[x]),

the direction of linear discriminant analysis: for normal contexts and a policy of logits ``φ_a·x`` it is ``φ_a`` up to
what all arms share.  The prior of the weights has a part ``γz_a`` (``side.prior``) with an unknown ``γ`` of either
sign, for recorded and for hidden features, which logs and rounds tell: 0 for a policy that chose by something else.
With ``F`` the regression of hidden on recorded features and ``c_a`` the mean of ``x_h − Fᵀx_o`` in excess of that of
all contexts, ``z_h = Σ_e⁻¹c_a`` and ``z_o = Σ_oo⁻¹(E[x_o | a] − E[x_o]) − Fz_h``.
"""

from __future__ import annotations

import numpy as np

from sidelight.hidden.frame import Frame
from sidelight.hidden.protocol import HiddenShift
from sidelight.linalg import Array, inverse, product
from sidelight.logs.summary import LogSummary

__all__ = ["all_preferences", "recorded_preferences"]


def recorded_preferences(summary: LogSummary) -> Array:
    """``Σ_oo⁻¹(E[x_o | a] − E[x_o])``: (K, L), each arm's shrunk by what its number of rows leaves to chance."""
    frame = Frame.leveled(summary)
    return np.asarray((frame.preferred * frame.scale)[:, : summary.n_recorded])


def all_preferences(recorded: Array, hidden: HiddenShift | None, scales: Array) -> Array:
    """``z_a``: (K, L + m), recorded features first.

    Args:
        recorded: (K, L)  ``recorded_preferences`` of the log.
        hidden: how the hidden features of an arm's contexts are shifted; None where nothing is known.
        scales: (m,)  standard deviations of the hidden features, which stand in for ``Σ_e`` where it is unknown.
    """
    if hidden is None:
        return np.concatenate([recorded, np.zeros((len(recorded), len(scales)))], axis=1)
    if hidden.residual is None:
        own = hidden.levels / np.square(scales)
    else:
        own = product(hidden.levels, inverse(hidden.residual))
    return np.concatenate([recorded - product(own, hidden.slopes.T), own], axis=1)
