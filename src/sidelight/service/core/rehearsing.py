"""Warm-up: a small learner of the configured kind plays some rounds, so that the kernels it needs are compiled.

A learner calls some of its kernels at its first refresh or its first judgment of a log only, which may be thousands of
events away. Compiled forms do not depend on sizes, so a learner of four arms stands in for one of any size.
"""

from __future__ import annotations

import contextlib
import json
from typing import Any

import numpy as np

from sidelight.judging.old_rows import PolicyModel
from sidelight.logs.schema.schema import Schema
from sidelight.logs.summary import LogSummary
from sidelight.service.config import Config
from sidelight.service.core.deciding import Ask, Decider
from sidelight.service.core.fold import State
from sidelight.service.core.teaching import LEARNER_ERRORS
from sidelight.service.metrics import Metrics

__all__ = ["rehearse", "rehearse_requests"]

#: rounds, enough for every kind of refresh and for the first judgment of a log
_ROUNDS = 130
#: rows of the log, enough per arm to compare residual variances between arms
_LOG_ROWS = 240
#: arms, and rows of a batch, enough for the kernels that batches use
_ARMS = ("a", "b", "c", "d")
_BATCH = 64

#: configurations that were warmed up in this process
_rehearsed: set[str] = set()


def rehearse(config: Config) -> None:
    """Compile the kernels that learners as ``config`` has them need; once per process and kind."""
    schema = config.load_schema()
    names = list(config.summary_files())
    hidden = schema.n_recorded < schema.n_features
    learner = config.learner
    key = json.dumps([learner.kind, learner.answers, learner.settings, names, schema.intercept, hidden], default=repr)
    if key in _rehearsed:
        return
    _rehearsed.add(key)
    # Settings may fit only the real sizes: then only what runs before the failure is compiled.
    with contextlib.suppress(*LEARNER_ERRORS):
        rng = np.random.default_rng(0)
        small = Schema(
            ["u", "v", "w"], recorded=["u", "v"] if hidden else ["u", "v", "w"], arms=_ARMS, intercept=schema.intercept
        )
        _live(config.make_learner(small, {name: _log(small, rng) for name in names}), rng)


def _log(schema: Schema, rng: np.random.Generator) -> LogSummary:
    X = rng.normal(size=(_LOG_ROWS, schema.n_recorded))
    arms = [_ARMS[i % len(_ARMS)] for i in range(_LOG_ROWS)]
    return LogSummary.from_arrays(X, arms, rng.normal(size=_LOG_ROWS), schema)


def _live(learner: Any, rng: np.random.Generator) -> None:
    """Play rounds with answers of the old policy and rewards, for every arm in turn, and fit a model of that policy."""
    model = PolicyModel(len(_ARMS), learner.n_features)
    for i in range(_ROUNDS):
        x, arm = rng.normal(size=learner.n_features), _ARMS[i % len(_ARMS)]
        if learner.needs == "action":
            learner.observe_behavior(x, arm)
        elif learner.needs == "probabilities":
            learner.observe_behavior(x, probabilities=np.full(len(_ARMS), 1.0 / len(_ARMS)))
        model.observe(x, i % len(_ARMS))
        if learner.ledger is None:
            learner.decide(x)
        else:
            learner.decide_under(learner.ledger, x, _ARMS[0])
            learner.record_decision(x, arm, _ARMS[0])
        learner.observe(x, arm, float(rng.normal()))
    learner.decide_many(rng.normal(size=(_BATCH, learner.n_features)))


def rehearse_requests(copy: State) -> None:
    """Compile what a server's first requests need.

    Args:
        copy: of the server's state, with the real learner and its real sizes; it is thrown away afterwards.
    """
    learner, K = copy.learner, len(copy.learner.arms)
    x = np.zeros(learner.n_features)
    x[0] = 1.0
    decider = Decider(learner, Metrics())
    with contextlib.suppress(*LEARNER_ERRORS):
        if learner.needs == "action":
            learner.observe_behavior(x, learner.arms[0])
        elif learner.needs == "probabilities":
            learner.observe_behavior(x, probabilities=np.full(K, 1.0 / K))
        learner.observe(x, learner.arms[0], 0.0)
        for rows in (1, 2):
            decider.choose(copy, np.tile(x, (rows, 1)), None)
        decider.choose(copy, x[None], [Ask(allowed=[learner.arms[-1]])])
