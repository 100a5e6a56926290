"""Does the arm that was tried depend on the context? A score test for tables that are said to be randomized trials."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray
from scipy.special import chdtrc

from sidelight.drawing.intervals import number
from sidelight.drawing.notebook import card
from sidelight.errors import InputError
from sidelight.worlds.protocol import Floats

__all__ = ["SUSPICIOUS", "RandomizationCheck", "randomization_check"]

SUSPICIOUS = 1e-4
"""A trial whose randomization check has a smaller p-value is refused: chance alone does that once in 10,000 trials."""


class RandomizationCheck(NamedTuple):
    """Does the arm that was tried depend on the context? Small p-values say that it does."""

    statistic: float
    """Score test of a multinomial logit on all features; chi-squared with ``degrees`` if the trial is randomized."""
    degrees: int
    p_value: float
    worst_feature: str
    """The encoded feature that differs most between arms, with its own p-value (not corrected for the choice)."""
    worst_p_value: float

    def _repr_html_(self) -> str:
        doubtful = self.p_value < SUSPICIOUS
        return card(
            "The arm that was tried depends on the context: this is no randomized trial."
            if doubtful
            else "Nothing speaks against a randomized trial: the arm that was tried does not depend on the context.",
            [
                (
                    "p-value",
                    f"{self.p_value:.2g} (chi-squared {number(self.statistic)}, {self.degrees:,} degrees of freedom)",
                ),
                ("differs most between arms", f"{self.worst_feature}, p = {self.worst_p_value:.2g} taken alone"),
            ],
        )


def randomization_check(X: Floats, arms: NDArray[np.intp], names: tuple[str, ...]) -> RandomizationCheck:
    """Test that arms ``(n,)`` do not depend on contexts ``X`` ``(n, p)``.

    ``n tr(S_UU⁻¹ S_UX S_XX⁺ S_XU)`` with ``U`` the centred indicators of all arms but one and ``X`` centred: the score
    test of a multinomial logit, chi-squared with ``(K − 1)·rank`` degrees of freedom in a large randomized trial.
    """
    n = len(X)
    found = np.unique(arms)
    if len(found) < 2:
        raise InputError("only one arm was ever tried: there is nothing to compare.")
    U = (arms[:, None] == found[None, 1:]).astype(np.float64)
    U -= U.mean(axis=0)
    centred = X - X.mean(axis=0)
    deviation = centred.std(axis=0)
    varying = deviation > 1e-12 * np.maximum(1.0, np.abs(X).max(axis=0))
    if not varying.any():
        raise InputError("no feature varies, so whether the trial is randomized cannot be checked.")
    centred = centred[:, varying] / deviation[varying]
    shared = np.linalg.solve(np.linalg.cholesky(U.T @ U / n), U.T @ centred / n)  # (K−1, p)
    values, vectors = np.linalg.eigh(centred.T @ centred / n)
    large = values > 1e-9 * values[-1]
    turned = (shared @ vectors[:, large]) / np.sqrt(values[large])
    statistic, degrees = float(n * (turned**2).sum()), int(U.shape[1] * large.sum())
    single = n * (shared**2).sum(axis=0)
    worst = int(single.argmax())
    return RandomizationCheck(
        statistic,
        degrees,
        float(chdtrc(degrees, statistic)),
        [name for name, kept in zip(names, varying, strict=True) if kept][worst],
        float(chdtrc(U.shape[1], single[worst])),
    )
