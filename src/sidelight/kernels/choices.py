"""One compiled step of a softmax regression that predicts a choice and then learns it (``judging.old_rows``)."""

from __future__ import annotations

import math

from sidelight.kernels.compiled import helper, kernel
from sidelight.kernels.elementary import exp

__all__ = ["FAR", "STEP", "VARIES", "predict_and_learn"]

#: standardised features are clipped to this absolute value
FAR = 6.0
#: learning rate of AdaGrad
STEP = 0.5
#: a feature whose deviation is a smaller part of its mean does not vary
VARIES = 1e-9


@helper
def softmax(coefficients, z, out):  # type: ignore[no-untyped-def]
    """``out = softmax(coefficients z)``.  coefficients: (K, n)   z: (n,)   out: (K,)"""
    largest = -math.inf
    for a in range(out.shape[0]):
        total = 0.0
        for j in range(z.shape[0]):
            total += coefficients[a, j] * z[j]
        out[a] = total
        largest = max(largest, total)
    total = 0.0
    for a in range(out.shape[0]):
        out[a] = exp(out[a] - largest)
        total += out[a]
    for a in range(out.shape[0]):
        out[a] /= total


@helper
def standardise(x, count, moments, z):  # type: ignore[no-untyped-def]
    """``z``: 1, and the standardised features, clipped.  x: (d,)   moments: (2, d)   z: (1 + d,)"""
    z[0] = 1.0
    for j in range(x.shape[0]):
        z[1 + j] = 0.0
        if count >= 2:
            deviation = math.sqrt(moments[1, j] / count)
            if deviation > VARIES * abs(moments[0, j]):
                z[1 + j] = min(max((x[j] - moments[0, j]) / deviation, -FAR), FAR)


@kernel
def predict_and_learn(x, arm, count, moments, coefficients, room, chances):  # type: ignore[no-untyped-def]
    """The chances of all arms at ``x`` before the step, and the step (AdaGrad) that learns that ``arm`` was taken.

    Args:
        x: (d,)  the context.
        arm: position of the arm.
        count: rows before this one.
        moments: (2, d)  means of the features and sums of squared deviations; changed.
        coefficients: (3, K, 1 + d)  the coefficients, their sums of squared gradients, their average; changed.
        room: (1 + d + K,)
        chances: (K,)  of the average, written.
    """
    z, errors = room[: 1 + x.shape[0]], room[1 + x.shape[0] :]
    standardise(x, count, moments, z)
    softmax(coefficients[2], z, chances)
    softmax(coefficients[0], z, errors)
    errors[arm] -= 1.0
    # an average in which later coefficients weigh more: roughly that of the last half
    weight = min(1.0, 4.0 / (4.0 + count))
    for a in range(errors.shape[0]):
        for j in range(z.shape[0]):
            gradient = errors[a] * z[j]
            coefficients[1, a, j] += gradient * gradient
            coefficients[0, a, j] -= STEP * gradient / math.sqrt(coefficients[1, a, j] + 1e-12)
            coefficients[2, a, j] += (coefficients[0, a, j] - coefficients[2, a, j]) * weight
    for j in range(x.shape[0]):
        difference = x[j] - moments[0, j]
        moments[0, j] += difference / (count + 1.0)
        moments[1, j] += difference * (x[j] - moments[0, j])
