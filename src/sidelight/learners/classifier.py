"""``fit``, ``partial_fit``, ``predict``: a learner with the habits of scikit-learn, which need not be installed."""

from __future__ import annotations

import inspect
import warnings
from collections.abc import Mapping, Sequence
from importlib import import_module
from typing import TYPE_CHECKING, Any, Literal

import numpy as np
from numpy.typing import NDArray

from sidelight.drawing.notebook import card
from sidelight.errors import ContextError, InputError, SidelightWarning
from sidelight.hidden.probabilities import BehaviorProbabilities
from sidelight.hidden.queries import BehaviorQueries
from sidelight.learners.cards import decisions_table
from sidelight.learners.epoch import EpochOFUL
from sidelight.learners.fused.learner import FusedOFUL
from sidelight.learners.inputs import (
    as_column,
    as_table,
    free_name,
    in_the_form_of,
    known_features,
    label_array,
    not_fitted,
)
from sidelight.learners.oful import OFUL
from sidelight.learners.running import RunningOFUL
from sidelight.learners.thompson import FusedThompson
from sidelight.learners.zero_filled import ZeroFilledOFUL
from sidelight.linalg import Array
from sidelight.logs.schema.schema import Schema
from sidelight.logs.summarize import summarize_log
from sidelight.logs.summary import LogSummary

if TYPE_CHECKING:
    import pyarrow as pa

    from sidelight.logs.schema.features import Feature

__all__ = ["BanditClassifier"]

#: learners that start from a log and an estimator of its hidden half
_FROM_ESTIMATOR: dict[str, Any] = {
    "FusedOFUL": FusedOFUL,
    "FusedThompson": FusedThompson,
    "RunningOFUL": RunningOFUL,
    "EpochOFUL": EpochOFUL,
}
_ANSWERS = ("queries", "probabilities")


class BanditClassifier:
    """A learner behind ``fit``, ``partial_fit`` and ``predict``: arms are the classes.

    ``fit`` reads the old log, ``partial_fit`` learns from rounds in which everything was seen, ``predict`` decides.
    Arrays and frames go in; what comes out of :meth:`decisions` has the form of what went in. It can be cloned, takes
    ``set_params`` and ends a pipeline. There is no ``score``: what a policy would have earned cannot be read off a
    confounded log.

    Args:
        learner: ``"FusedOFUL"`` (default), ``"FusedThompson"``, ``"RunningOFUL"``, ``"EpochOFUL"`` (``settings`` then
            needs ``horizon``), ``"ZeroFilledOFUL"``, or ``"OFUL"``, which takes the rows of a log that hides nothing
            for rounds of its own, and does not look at any other.
        features: all features of a full context: their names (or ``Number`` and ``Category``), or for arrays their
            number. Default those of the ``X`` given to ``fit``, so that nothing is hidden.
        arms: the arms; default those of the log.
        intercept: whether to add a constant feature.
        answers: what ``partial_fit`` is told of the old policy: ``"queries"`` (its arm) or ``"probabilities"``.
        settings: further arguments of the learner, by name.

    Attributes:
        learner_: the learner. ``learner_.save(path)`` keeps it.
        summary_: what was kept of the log; None where there was none.
        classes_: (K,) the arms.
        n_features_in_: the features of a full context, before encoding.

    Examples:
        >>> import numpy as np, sidelight as sl
        >>> rng = np.random.default_rng(0)
        >>> X = rng.normal(size=(500, 3))
        >>> dose = np.where(X[:, 2] > 0, "high", "low")                    # the old policy looked at the third
        >>> reward = X @ [0.2, 0.1, 0.6] + (dose == "high") * X[:, 0]
        >>> bandit = sl.BanditClassifier(features=3).fit(X[:, :2], dose, reward)   # which the log lacks
        >>> bandit.partial_fit(X[:50], dose[:50], reward[:50], behavior=dose[:50])
        BanditClassifier(features=3): FusedOFUL with 50 rounds on a log of 500 rows, 2 arms
        >>> bandit.predict([[1.5, 0.0, 0.3], [-1.5, 0.0, 0.3]]).tolist()
        ['high', 'low']
    """

    _estimator_type = "classifier"

    def __init__(
        self,
        learner: str = "FusedOFUL",
        *,
        features: int | Sequence[str | Feature] | None = None,
        arms: Sequence[Any] | None = None,
        intercept: bool = True,
        answers: Literal["queries", "probabilities"] = "queries",
        settings: Mapping[str, Any] | None = None,
    ) -> None:
        # stored unchecked, as scikit-learn requires: ``clone`` compares them with the arguments
        self.learner = learner
        self.features = features
        self.arms = arms
        self.intercept = intercept
        self.answers = answers
        self.settings = settings

    # ------------------------------------------------------------------------------------ learning

    def fit(self, X: Any, y: Any, reward: Any) -> BanditClassifier:
        """Start from a log, forgetting everything before.

        Args:
            X: (n, L) what the log recorded of each context: a frame, or an array. A feature is hidden if ``X`` lacks
                its column, or has no value there in any row; an array with fewer columns than ``features`` has the
                first ones.
            y: (n,) the arm that the old policy took.
            reward: (n,) what followed.
        """
        table = as_table(X, self.features)
        features = known_features(table, self.features)
        names = [feature.name for feature in features]
        recorded = [name for name in names if name in table.column_names and table[name].null_count < table.num_rows]
        arm, outcome = free_name("arm", names), free_name("reward", names)
        schema = Schema(features, recorded, arm, outcome, self.arms, self.intercept)
        arms, rewards = as_column(y, table.num_rows, "y"), as_column(reward, table.num_rows, "reward")
        log = table.select(recorded).append_column(arm, arms).append_column(outcome, rewards)
        self.summary_: LogSummary | None = summarize_log(log, schema)
        self._begin(self._from_log(self.summary_), self.summary_.schema)
        if self.learner == "OFUL":
            self._own_rows(log, arm, outcome)
        return self

    def _own_rows(self, log: pa.Table, arm: str, outcome: str) -> None:
        """Observe the log's rows like rounds if it hides nothing; else warn, since it would mislead a plain learner."""
        if len(self.schema_.hidden_index):
            warnings.warn(
                f"The log hides {self._hidden()}, so OFUL does not look at it and starts cold; FusedOFUL would.",
                SidelightWarning,
                stacklevel=3,
            )
            return
        encoded = self.schema_.encode_many(log)
        self.learner_.observe_many(encoded, log[arm].to_pylist(), log[outcome].to_numpy())
        self._rows_as_rounds = log.num_rows

    def partial_fit(
        self, X: Any, y: Any, reward: Any, *, behavior: Any = None, classes: Sequence[Any] | None = None
    ) -> BanditClassifier:
        """Learn from rounds: full contexts, the arms that were taken, their rewards.

        Without ``fit`` before it, it starts without a log: OFUL with a learned prior.

        Args:
            X: (n, d) full contexts.
            y: (n,) the arms that were taken.
            reward: (n,) what followed.
            behavior: (n,) the arms that the old policy would have taken, None or NaN where it was not asked; or
                (n, K) its probabilities.
            classes: without a log: the arms, where ``arms`` was not given.
        """
        if not hasattr(self, "learner_"):
            self._begin_cold(as_table(X, self.features), classes)
        contexts = self._full_contexts(X)
        arms = as_column(y, contexts.num_rows, "y").to_pylist()
        rewards = as_column(reward, contexts.num_rows, "reward").to_pylist()
        encoded = self.schema_.encode_many(contexts)
        # all of it is checked before any of it is learned
        for arm, value in zip(arms, rewards, strict=True):
            self.learner_._arm(arm)
            self.learner_._reward(value)
        if behavior is not None:
            self._answers(encoded, behavior)
        elif self._deaf():
            warnings.warn(
                f"The log hides {self._hidden()} and nothing is known of the old policy yet, so the log counts for "
                "next to nothing: give behavior=, what it would have done in these rounds, for some of them at least.",
                SidelightWarning,
                stacklevel=2,
            )
        self.learner_.observe_many(encoded, arms, rewards)
        return self

    def _begin(self, learner: Any, schema: Schema) -> None:
        self.learner_ = learner
        self.schema_ = schema
        # some learners count the log's rows among their observations
        self._rows_as_rounds = int(learner.counts.sum())
        self.classes_ = label_array(learner.arms)
        self.n_features_in_ = len(schema.features)
        self.feature_names_in_ = np.array([feature.name for feature in schema.features], dtype=object)

    def _begin_cold(self, contexts: pa.Table, classes: Sequence[Any] | None) -> None:
        arms = self.arms if classes is None else classes
        if arms is None:
            raise InputError(
                "Which arms are there? One batch may not show all of them: give classes= with the first partial_fit, "
                "or arms= when making it, or fit a log."
            )
        schema = Schema(known_features(contexts, self.features), [], arms=arms, intercept=self.intercept)
        self.summary_ = None
        self._begin(self._oful(schema), schema)

    def _oful(self, schema: Schema) -> Any:
        arms = list(schema.arms or ())
        settings = {"regularization": "auto", "radius": "posterior", **dict(self.settings or {})}
        return OFUL(len(arms), schema.n_features, schema=schema, arms=arms, **settings)

    def _from_log(self, summary: LogSummary) -> Any:
        settings = dict(self.settings or {})
        if self.learner == "OFUL":
            return self._oful(summary.schema)
        if self.learner == "ZeroFilledOFUL":
            return ZeroFilledOFUL(summary, **settings)
        if self.learner not in _FROM_ESTIMATOR:
            known = ", ".join([*_FROM_ESTIMATOR, "ZeroFilledOFUL", "OFUL"])
            raise InputError(f"learner={self.learner!r} is not one of {known}.")
        if self.answers not in _ANSWERS:
            raise InputError(f"answers={self.answers!r} is not one of {', '.join(_ANSWERS)}.")
        hidden = BehaviorQueries(summary) if self.answers == "queries" else BehaviorProbabilities(summary)
        return _FROM_ESTIMATOR[self.learner](hidden, **settings)

    def _answers(self, encoded: Array, behavior: Any) -> None:
        if self.answers == "queries":
            answers = as_column(behavior, len(encoded), "behavior").to_pylist()
            self.learner_.observe_behavior_many(encoded, answers)
        else:
            self.learner_.observe_behavior_many(encoded, probabilities=behavior)

    def _deaf(self) -> bool:
        """Whether a log hides something and no answer has come yet."""
        estimators = self.learner_.estimators().values()
        hides = self.summary_ is not None and len(self.summary_.hidden) > 0
        return hides and any(e.needs is not None and e.n_answers == 0 for e in estimators)

    def _hidden(self) -> str:
        recorded = set(self.schema_.recorded)
        return ", ".join(feature.name for feature in self.schema_.features if feature.name not in recorded)

    # ------------------------------------------------------------------------------------ deciding

    def predict(self, X: Any) -> NDArray[Any]:
        """(n,) the arms that are chosen for the full contexts ``X``."""
        return label_array([decision.arm for decision in self._decide(X)])

    def decisions(self, X: Any) -> Any:
        """``arm, estimate, width, propensity`` for each context, in the form of ``X``: pandas, polars, else Arrow."""
        return in_the_form_of(X, decisions_table(self._decide(X)))

    def decision_function(self, X: Any) -> Array:
        """(n, K) the index of each arm, estimate plus width, in the order of ``classes_``."""
        rows = [sum(self._learner.scores(x)) for x in self._encoded(X)]
        return np.array(rows, dtype=np.float64).reshape(len(rows), len(self.classes_))

    def predict_proba(self, X: Any) -> Array:
        """(n, K) the probability with which each arm is chosen, in the order of ``classes_``.

        A learner that does not draw chooses one arm with probability 1. It says nothing about which arm is best.
        """
        rows = [self._learner.propensities(x) for x in self._encoded(X)]
        chances = np.array(rows).reshape(len(rows), len(self.classes_))
        # Thompson's come from a quadrature, and scikit-learn expects rows that sum to 1
        return np.asarray(chances / chances.sum(axis=1, keepdims=True))

    @property
    def _learner(self) -> Any:
        if not hasattr(self, "learner_"):
            raise not_fitted("Nothing has been learned yet: fit a log, or partial_fit rounds, before predicting.")
        return self.learner_

    def _encoded(self, X: Any) -> Array:
        self._learner  # noqa: B018 - complains where there is none
        return self.schema_.encode_many(self._full_contexts(X))

    def _full_contexts(self, X: Any) -> pa.Table:
        """Full contexts as a table; an array has a column for every feature."""
        table = as_table(X, self.feature_names_in_.tolist())
        if not hasattr(X, "__arrow_c_stream__") and table.num_columns != self.n_features_in_:
            raise ContextError(
                f"X has {table.num_columns} features, but BanditClassifier is expecting {self.n_features_in_} features "
                f"as input: {', '.join(self.feature_names_in_)}."
            )
        return table

    def _decide(self, X: Any) -> list[Any]:
        decisions: list[Any] = self._learner.decide_many(self._encoded(X))
        return decisions

    # ------------------------------------------------------------------------ scikit-learn's habits

    def get_params(self, deep: bool = True) -> dict[str, Any]:
        """The arguments it was made with."""
        return {name: getattr(self, name) for name in _parameters()}

    def set_params(self, **params: Any) -> BanditClassifier:
        """Change arguments; they count from the next ``fit``."""
        unknown = sorted(set(params) - set(_parameters()))
        if unknown:
            raise InputError(f"{', '.join(unknown)} is not a parameter; there are {', '.join(_parameters())}.")
        for name, value in params.items():
            setattr(self, name, value)
        return self

    def __sklearn_is_fitted__(self) -> bool:
        return hasattr(self, "learner_")

    def __sklearn_tags__(self) -> Any:
        tags = import_module("sklearn.utils")  # only scikit-learn itself asks
        return tags.Tags(
            estimator_type="classifier",
            target_tags=tags.TargetTags(required=True),
            transformer_tags=None,
            classifier_tags=tags.ClassifierTags(),
            regressor_tags=None,
            input_tags=tags.InputTags(categorical=True),  # text and gaps in frames alone
        )

    def __repr__(self) -> str:
        changed = [
            f"{name}={getattr(self, name)!r}"
            for name, parameter in _parameters().items()
            if getattr(self, name) is not parameter.default and getattr(self, name) != parameter.default
        ]
        made = f"BanditClassifier({', '.join(changed)})"
        if not hasattr(self, "learner_"):
            return made
        rounds = int(self.learner_.counts.sum()) - self._rows_as_rounds
        log = "without a log" if self.summary_ is None else f"on a log of {self.summary_.n_rows:,} rows"
        return f"{made}: {type(self.learner_).__name__} with {rounds:,} rounds {log}, {len(self.classes_)} arms"

    def _repr_html_(self) -> str:
        return self.learner_._repr_html_() if hasattr(self, "learner_") else card(repr(self))


def _parameters() -> dict[str, inspect.Parameter]:
    return {n: p for n, p in inspect.signature(BanditClassifier.__init__).parameters.items() if n != "self"}
