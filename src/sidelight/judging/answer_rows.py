"""Answers of the old policy as rows: full contexts, what it would do there, and how each counts."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from sidelight.errors import InputError
from sidelight.hidden.protocol import HiddenEstimator, completed
from sidelight.judging.complete_rows import CompleteRows
from sidelight.judging.policies import Columns, moments_of
from sidelight.labels import Label, show_labels, sorted_labels
from sidelight.linalg import Array
from sidelight.logs.schema.features import Category, Date
from sidelight.logs.schema.schema import Schema
from sidelight.logs.schema.uniting import column_map

__all__ = ["Answers"]


@dataclass(frozen=True)
class Answers:
    """Answers of the old policy, one by one.

    Attributes:
        schema: of the contexts, resolved.
        X: (n, d) full contexts in the schema's order.
        chances: (n, K) how likely each arm of the log is there: 1 for the arm that it named, or its probabilities.
        weights: (n,) ``1/q``, ``q`` the chance that this context was asked about; their mean is 1.
    """

    schema: Schema
    X: Array
    chances: Array
    weights: Array

    @classmethod
    def of(cls, estimator: HiddenEstimator, arms: Sequence[Label]) -> Answers:
        """The answers that an estimator of the hidden half has kept, one by one.

        Raises:
            InputError: it has no answers, kept only their sums, or has answers about other arms.
        """
        sums = completed(estimator).sums
        rows = [] if sums is None else sums.rows
        if not rows:
            why = (
                "was told of no answer"
                if estimator.n_answers == 0
                else f"keeps only sums of its {estimator.n_answers:,} answers (as after a file or a companion log)"
            )
            raise InputError(
                f"answers={estimator!r:.80} {why}, and a verdict needs the answers themselves: observe them again with "
                "BehaviorQueries or BehaviorProbabilities. Rows with rewards are given as complete=."
            )
        summary = estimator.summary
        missing = [label for label in summary.arms if label not in arms]
        where = [list(arms).index(label) if label in arms else -1 for label in summary.arms]
        chances = np.zeros((len(rows), len(arms)))
        for i, (_, answer, _) in enumerate(rows):
            p = np.eye(len(where))[answer] if np.ndim(answer) == 0 else np.asarray(answer)
            for a, chance in zip(where, p, strict=True):
                if chance > 0 and a < 0:
                    raise InputError(
                        f"the old policy's answers speak of the arms {show_labels(missing)}, of which this log has no "
                        f"rows; it has {show_labels(arms)}. Give answers about the log's own arms."
                    )
                if a >= 0:
                    chances[i, a] += chance
        weights = np.array([weight for _, _, weight in rows])
        return cls(summary.schema, np.array([x for x, _, _ in rows]), chances, weights / weights.mean())

    @classmethod
    def of_rows(cls, rows: CompleteRows) -> Answers:
        """Rows with every feature and the arm that the old policy would take, each asked about with certainty."""
        chunks = list(rows.chunks())
        codes = np.concatenate([chunk.codes for chunk in chunks])
        chances = np.zeros((len(codes), len(rows.arms)))
        chances[np.arange(len(codes)), codes] = 1.0
        return cls(rows.schema, np.concatenate([chunk.X for chunk in chunks]), chances, np.ones(len(codes)))

    def __len__(self) -> int:
        return len(self.X)

    def recorded(self, schema: Schema) -> Array:
        """(n, L_schema) the recorded columns of another schema; the constant is 1.

        A level that has no column of its own in one of the two schemas is inferred from those of the other levels.

        Raises:
            InputError: the answers' contexts lack one of them, or have levels that the other schema does not know.
        """
        self._check_recorded(schema)
        whole = self.schema.with_recorded([feature.name for feature in self.schema.features])
        T = column_map(whole, schema)
        if T is None:
            return self.X
        # only the columns that are needed: others may have gaps
        columns = [self.X[:, own] @ T[own, j] for j, own in enumerate(T.T != 0.0)]
        if schema.intercept:
            columns[0] = np.ones(len(self))
        return np.column_stack(columns) if columns else np.empty((len(self), 0))

    def _check_recorded(self, schema: Schema) -> None:
        use = "Use an estimator whose summary has the log's schema."
        features = {feature.name: feature for feature in self.schema.features}
        terms = {term.label: term.to_dict() for term in self.schema.derived}
        lacking = [name for name in schema.recorded if name not in features]
        lacking += [term.label for term in schema.recorded_terms if term.label not in terms]
        if lacking:
            what = show_labels(lacking)
            raise InputError(f"the contexts of the old policy's answers have no {what}, which the log recorded. {use}")
        others = [term.label for term in schema.recorded_terms if term.to_dict() != terms[term.label]]
        if others:
            raise InputError(f"{show_labels(others)} of the answers was fitted to other rows than the log's. {use}")
        for feature in schema.recorded_features:
            own = features[feature.name]
            if not (isinstance(feature, Category) and isinstance(own, Category) and own.own):
                continue
            new = set(self.columns([own.name])[own.name]) - set(feature.levels or ())
            if new:
                levels = show_labels(sorted_labels(new))
                raise InputError(
                    f"in the contexts of the old policy's answers {own.name!r} is {levels}, of which the log has no "
                    "rows: leave those answers out."
                )

    def hidden(self, schema: Schema) -> Array:
        """(n, m) the columns of features that another schema does not record."""
        recorded = set(schema.recorded)
        at = [
            self.schema.feature_start(feature.name) + i
            for feature in self.schema.features
            if feature.name not in recorded
            for i in range(len(feature.encoded_names))
        ]
        for term in self.schema.derived:
            if not set(term.inputs) <= recorded:
                start = self.schema.feature_start(term.label)
                at += range(start, start + len(self.schema.term_names(term)))
        return self.X[:, at]

    def columns(self, names: Sequence[str]) -> Columns:
        """Features by name in the user's units, as a policy that is a function receives them.

        A feature of which the contexts hold only derived columns is lacking: its values cannot be recovered.
        """
        found: dict[str, np.ndarray] = {}
        for feature in self.schema.features:
            if feature.name not in names or not feature.encoded_names:
                continue
            start = self.schema.feature_start(feature.name)
            part = self.X[:, start : start + len(feature.encoded_names)]
            if isinstance(feature, Category):
                levels = np.array([*feature.column_levels, feature.baseline], dtype=object)
                hot = np.where(part.any(axis=1), part.argmax(axis=1) if part.shape[1] else 0, len(levels) - 1)
                found[feature.name] = levels[hot]
            else:
                found[feature.name] = moments_of(part[:, 0]) if isinstance(feature, Date) else part[:, 0]
        return Columns(found, frozenset(feature.name for feature in self.schema.features) - set(found))
