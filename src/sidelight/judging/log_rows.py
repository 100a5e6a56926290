"""The log of a verdict: one pass for the sums of every era and half, one more for policies that look at columns.

Rows go to two halves by a hash of their number, so that a policy chosen on one half is valued on the other.  Memory
does not depend on the number of rows.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from typing import Any

import numpy as np

from sidelight.errors import InputError, SchemaError, SourceError
from sidelight.judging.policies import Lacking, Requested, columns_of_batch, suggested, take
from sidelight.judging.population import Population
from sidelight.judging.row_sums import Residuals, Sample, Tally, collect
from sidelight.judging.valuing import Estimate, combined, cross_fitted, disagreement, of_tally
from sidelight.labels import Label
from sidelight.logs.eras import recorded_by_value, rows_by_missing, rows_by_value
from sidelight.logs.reduce.log_pass import (
    LogPass,
    batch_rows,
    check_settings,
    label_columns,
    opened_with_kinds,
    threads_available,
)
from sidelight.logs.reduce.second_pass import encoded_rows
from sidelight.logs.schema.schema import Schema
from sidelight.logs.sources.base import Bundle, Source
from sidelight.logs.sources.opening import open_source
from sidelight.logs.summary import LogSummary

__all__ = ["Era", "LogRows", "halves", "halves_of", "row_hashes"]


@dataclass(frozen=True)
class Era:
    """One era of a log: all its rows, and its two halves.

    Attributes:
        key: what names it, ``None`` for a log without eras.
        summary: of all its rows.
        whole: the population of all its rows.
        halves: the populations of its halves.
    """

    key: Any
    summary: LogSummary
    whole: Population
    halves: tuple[Population, Population]


#: Most rows of an era that are kept to estimate how the bounds vary.
_SAMPLE = 20_000


def halves(first: int, n: int) -> np.ndarray:
    """(n,) booleans: which of the rows numbered ``first`` and on belong to the second half."""
    return halves_of(row_hashes(first, n))


def halves_of(hashes: np.ndarray) -> np.ndarray:
    """(n,) booleans: which of the rows with these hashes (n,) belong to the second half."""
    return (hashes & np.uint64(1)).astype(bool)


def row_hashes(first: int, n: int) -> np.ndarray:
    """(n,) 64 random bits for each of the rows numbered ``first`` and on, by splitmix64."""
    z = (np.arange(first, first + n, dtype=np.uint64) + np.uint64(1)) * np.uint64(0x9E3779B97F4A7C15)
    z = (z ^ (z >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
    z = (z ^ (z >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
    return np.asarray(z ^ (z >> np.uint64(31)))


class LogRows:
    """A log that can be read twice.

    Args:
        source: as for ``summarize_log``.
        schema: the user's schema; a constant is added and hidden features are left out.
        by: ``None`` for one log, ``"missing"`` or a column's name for eras, as for ``summarize_eras``.
        on_invalid: ``"raise"`` or ``"skip"``.
        progress: as for ``summarize_log``.
    """

    def __init__(self, source: Any, schema: Schema, by: str | None, on_invalid: str, progress: Any) -> None:
        self._features = frozenset(feature.name for feature in schema.features)
        schema = schema.of_recorded()
        check_settings(schema, on_invalid)
        self._source, self._schema, self._by = source, schema, by
        self._on_invalid, self._progress = on_invalid, progress
        self._recorded = tuple(feature.name for feature in schema.recorded_features)
        if by is not None and by != "missing" and by in schema.columns:
            raise SchemaError(f"the era column {by!r} is already used as a feature, arm or reward.")
        self._recorded_in: dict[Any, tuple[str, ...]] = {}
        self._open()  # raises here, before anything is read, if the source cannot be read twice
        more = (by,) if by is not None and by != "missing" else ()
        _, self._schema = opened_with_kinds(source, schema, more, self._recorded if by is not None else ())
        self.name = ""
        #: eras that no arm can be judged in: key → rows
        self.left_out: dict[Any, int] = {}
        #: rows that could not be used
        self.skipped = 0
        self.eras = self._first_pass()

    # ------------------------------------------------------------------------------------------- the first pass

    def _open(self) -> Source:
        named = self._by is not None and self._by != "missing"
        extra = (self._by,) if named and self._by is not None else ()
        opened = open_source(
            self._source,
            (*self._schema.columns, *extra),
            (*label_columns(self._schema), *extra),
            optional=self._recorded if self._by is not None else (),
        )
        if not opened.rereadable:
            raise InputError(
                f"a verdict reads the log twice, and {opened.name} can be read only once. Write it to a file first, or "
                "judge fixed arms from its summary: judge(summarize_log(log, schema))."
            )
        return opened

    def _groups(self, bundle: Bundle) -> Iterator[tuple[Any, np.ndarray | None]]:
        if self._by is None:
            yield None, None
        elif self._by == "missing":
            yield from rows_by_missing(bundle.batch, self._recorded, self._schema.layout().fills).items()
        else:
            yield from rows_by_value(bundle.batch, self._by).items()

    def _first_pass(self) -> tuple[Era, ...]:
        opened = self._open()
        self.name = opened.name
        if self._by is not None and self._by != "missing":
            self._recorded_in = recorded_by_value(self._open(), self._by, self._recorded)
        passes: dict[Any, tuple[LogPass, LogPass]] = {}
        first = 0
        with ThreadPoolExecutor(threads_available()) as pool, opened.reporting(self._progress, "reading"):
            try:
                for bundle in opened.bundles(batch_rows(self._schema)):
                    n = bundle.batch.num_rows
                    second = halves(first, n)
                    first += n
                    for key, rows in self._groups(bundle):
                        if key not in passes:
                            passes[key] = self._passes_of(key, pool, opened.text_labels)
                        for half, log_pass in enumerate(passes[key]):
                            chosen = second == bool(half)
                            log_pass.feed(bundle.filtered(chosen if rows is None else chosen & rows))
                if not passes:
                    raise SourceError(f"{opened.name} has no rows: there is nothing to judge.")
                return self._finish(passes, opened.name)
            except BaseException:
                for pair in passes.values():
                    for log_pass in pair:
                        log_pass.cancel()
                raise

    def _passes_of(self, key: Any, pool: ThreadPoolExecutor, text_labels: bool) -> tuple[LogPass, LogPass]:
        schema = self._schema
        if self._by is not None:
            schema = schema.with_recorded(key if self._by == "missing" else self._recorded_in[key])
        first, second = (LogPass(schema, self._on_invalid, pool, text_labels) for _ in range(2))
        return first, second

    def _finish(self, passes: dict[Any, tuple[LogPass, LogPass]], name: str) -> tuple[Era, ...]:
        arms: dict[Label, None] = {}
        levels: dict[str, dict[Label, None]] = {}
        for pair in passes.values():
            for log_pass in pair:
                if log_pass.rows_seen > sum(log_pass.skipped().values()):
                    found_arms, found_levels = log_pass.labels()
                    arms.update(dict.fromkeys(found_arms))
                    for feature, found in found_levels.items():
                        levels.setdefault(feature, {}).update(dict.fromkeys(found))
        shared = {feature: list(found) for feature, found in levels.items()}
        rows = sum(log_pass.rows_seen for pair in passes.values() for log_pass in pair)
        self.skipped = sum(sum(log_pass.skipped().values()) for pair in passes.values() for log_pass in pair)
        eras = []
        for key, pair in passes.items():
            usable = [one.rows_seen - sum(one.skipped().values()) for one in pair]
            if sum(usable) == 0 and len(passes) > 1:
                continue
            if min(usable) == 0:
                if len(passes) > 1:
                    self.left_out[key] = sum(usable)
                    continue
                # if no row can be used, finish() raises an error that says why
                for log_pass in pair:
                    if log_pass.rows_seen:
                        log_pass.finish(name, list(arms), shared, rows)
                raise SourceError(f"{name} has too few rows to judge anything: {int(sum(p.rows_seen for p in pair))}.")
            summaries = [log_pass.finish(name, list(arms), shared, rows) for log_pass in pair]
            whole = summaries[0] + summaries[1]
            populations = [Population.of(summary.moved_to(whole.schema)) for summary in summaries]
            eras.append(Era(key, whole, Population.of(whole), (populations[0], populations[1])))
        if not eras:
            raise SourceError(
                f"{name} has too few rows to judge anything: {sum(self.left_out.values())} that can be used."
            )
        judged = [era for era in eras if all(half.can_judge for half in era.halves)]
        self.left_out |= {era.key: era.whole.n_rows for era in eras if judged and era not in judged}
        return tuple(sorted(judged or eras, key=lambda era: -era.whole.n_rows))

    # ------------------------------------------------------------------------------------------ the second pass

    def second_pass(self, policies: Sequence[Requested], reference: int | None) -> Valued:
        """Squared residuals of every arm, and the value of policies that look at columns.

        Args:
            policies: of the kinds ``"best"``, ``"word"`` (chosen and valued on all rows) and ``"function"``.
            reference: position of the arm against which they are compared too, if any.
        """
        eras = {era.key: EraTally(era, policies, reference, self._features) for era in self.eras}
        opened = self._open()
        first = 0
        with opened.reporting(self._progress, "valuing"):
            for bundle in opened.bundles(batch_rows(self._schema)):
                n = bundle.batch.num_rows
                hashes = row_hashes(first, n)
                first += n
                for key, rows in self._groups(bundle):
                    if key in eras:
                        eras[key].add(
                            bundle if rows is None else bundle.filtered(rows),
                            hashes if rows is None else hashes[rows],
                            opened.text_labels,
                        )
        for tally in eras.values():
            tally.check(self.name)
        return Valued(tuple(eras.values()))


class EraTally:
    """What the second pass collects of one era: for the whole of it (functions) and for its halves (``"best"``)."""

    def __init__(
        self, era: Era, policies: Sequence[Requested], reference: int | None, features: frozenset[str]
    ) -> None:
        self.era = era
        self.whole = Residuals(era.whole)
        self.sample = Sample()
        self._most = np.uint64(min(1.0, _SAMPLE / max(era.whole.n_rows, 1)) * (2.0**64 - 2.0**12))
        self.policies, self.reference = policies, reference
        suggests = any(policy.kind == "best" for policy in policies)
        self.halves = tuple(Residuals(half) for half in era.halves) if suggests else ()
        self.half_samples = tuple(Sample() for _ in self.halves)
        #: per half (K, L) ``Σ x (1{the other half suggests a} − 1{the half itself does})``
        self._moved = tuple(np.zeros((len(half.arms), len(half.names))) for half in era.halves)
        references = (None,) if reference is None else (None, reference)
        #: policy → for each reference, the tallies of its populations
        self.tallies = {
            policy.name: [
                [Tally(p, against) for p in (era.halves if policy.kind == "best" else (era.whole,))]
                for against in references
            ]
            for policy in policies
        }
        self._positions = {label: i for i, label in enumerate(era.whole.arms)}
        self._names = [feature.name for feature in era.summary.schema.recorded_features]
        self._lacking = features - set(self._names)
        self._rows = np.zeros(len(era.whole.arms), dtype=np.int64)

    def add(self, bundle: Bundle, hashes: np.ndarray, text_labels: bool) -> None:
        """Add a bundle of this era's rows; ``hashes`` say which half each belongs to, and which are kept."""
        schema = self.era.summary.schema
        X, codes, rewards, _, usable = encoded_rows(bundle, schema, self._positions, text_labels)
        if len(X) == 0:
            return
        self._rows += np.bincount(codes, minlength=len(self._rows))
        hashes = hashes[usable]
        second, kept = halves_of(hashes), hashes <= self._most
        choices = self._choices(bundle, usable, text_labels)
        for policy in self.policies:
            if policy.kind == "word":
                choices[policy.name], _ = suggested(self.era.whole, self.era.whole, X)
        found = [(self._at(name, 0), taken) for name, taken in choices.items()]
        collect(self.whole, self.sample, kept, (X, codes, rewards), found)
        if not self.halves:
            return
        names = [policy.name for policy in self.policies if policy.kind == "best"]
        for half, rows in enumerate((~second, second)):
            own, other = self.era.halves[half], self.era.halves[1 - half]
            taken, known = suggested(other, own, X[rows])
            itself, _ = suggested(own, other, X[rows])
            columns = own.select(X[rows])
            for a in range(len(own.arms)):
                self._moved[half][a] += ((taken == a) * 1.0 - (itself == a)) @ columns
            found = [(self._at(name, half), taken) for name in names]
            if not known.all():
                for tally in (tally for tallies, _ in found for tally in tallies):
                    tally.problem = "in some contexts there is no arm whose reward can be estimated from the log"
            part = (X[rows], codes[rows], rewards[rows])
            collect(self.halves[half], self.half_samples[half], kept[rows], part, found)

    def _choices(self, bundle: Bundle, usable: np.ndarray, text_labels: bool) -> dict[str, np.ndarray]:
        """What each function takes in the usable rows; one that asks for a feature that the era lacks is dropped."""
        functions = [policy for policy in self.policies if policy.kind == "function"]
        if not functions:
            return {}
        batch = bundle.batch if usable.all() else bundle.filtered(usable).batch
        columns = columns_of_batch(batch, self.era.summary.schema, self._names, self._lacking, text_labels)
        found: dict[str, np.ndarray] = {}
        for policy in functions:
            tallies = self._at(policy.name, 0)
            if tallies[0].problem is not None:
                continue
            try:
                found[policy.name] = take(policy, columns, batch.num_rows, self.era.whole.arms)
            except Lacking as error:
                for tally in tallies:
                    tally.problem = f"it looks at {error.args[0]!r}, which the log lacks"
        return found

    def _at(self, name: str, population: int) -> list[Tally]:
        return [tallies[population] for tallies in self.tallies[name]]

    def estimate(self, name: str, against: int) -> Estimate:
        """The gain of a policy in this era: over the old policy (``against=0``) or over the reference (1)."""
        tallies = self.tallies[name][against]
        if len(tallies) == 1:
            return of_tally(tallies[0], self.whole, self.sample)
        parts = list(zip(tallies, self.halves, self.half_samples, self._moved, strict=True))
        first, second = (of_tally(tally, residuals, sample) for tally, residuals, sample, _ in parts)
        varies = [disagreement(res, moved / res.population.n_rows, sample) for _, res, sample, moved in parts]
        return cross_fitted(first, second, sum(varies) / 2.0)

    def check(self, name: str) -> None:
        """Raise SourceError unless both passes saw the same number of rows of every arm."""
        if not np.array_equal(self._rows, self.era.whole.counts):
            raise SourceError(
                f"{name} gave {int(self._rows.sum()):,} usable rows when it was read again, {self.era.whole.n_rows:,} "
                "before, or others: a verdict needs a log that stays the same and comes in the same order. Write it to "
                "a file first."
            )


@dataclass(frozen=True)
class Valued:
    """The second pass's sums, era by era: residuals, a sample of rows, and every policy's scores."""

    eras: tuple[EraTally, ...]

    @property
    def residuals(self) -> list[Residuals]:
        """Squared residuals of the whole of each era."""
        return [tally.whole for tally in self.eras]

    @property
    def samples(self) -> list[Sample]:
        """Some rows of the whole of each era."""
        return [tally.sample for tally in self.eras]

    def taken(self, name: str) -> list[np.ndarray]:
        """What a policy that is valued on all rows takes in the sample of each era; empty where it looks at others."""
        found = [era.tallies[name][0][0].taken for era in self.eras]
        return [np.concatenate(parts) if parts else np.zeros(0, dtype=np.int64) for parts in found]

    def estimate(self, name: str, against_reference: bool = False) -> Estimate:
        """The gain of a policy over the old policy, or over the reference."""
        return combined([era.estimate(name, int(against_reference)) for era in self.eras])
