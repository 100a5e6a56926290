"""All arms' caches from their sums in one call."""

from __future__ import annotations

from numba import njit

from sidelight.kernels.reduced import refresh


@njit(cache=True)
def refresh_arms(  # type: ignore[no-untyped-def]
    loadings,
    shifted,
    anchors,
    priors,
    prior_moments,
    prior_log_dets,
    dimensions,
    numbers,
    grams,
    moments,
    counts,
    updates,
    covariances,
    weights,
    log_dets,
    radii,
    bounds,
    packed,
):
    """``refresh`` for every arm."""
    for a in range(counts.shape[0]):
        refresh(
            a,
            loadings,
            shifted,
            anchors,
            priors,
            prior_moments,
            prior_log_dets,
            dimensions,
            numbers,
            grams,
            moments,
            counts,
            updates,
            covariances,
            weights,
            log_dets,
            radii,
            bounds,
            packed,
        )
