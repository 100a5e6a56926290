"""What a simulation found, for people: a table of standings, a card in a notebook, a picture.

``simulate`` returns a plain Arrow table, which any tool reads but which cannot have methods of ours: this object wraps
it.
"""

from __future__ import annotations

from collections.abc import Sequence

import pyarrow as pa

from sidelight.drawing.image_files import svg
from sidelight.drawing.intervals import number, span
from sidelight.drawing.notebook import card
from sidelight.drawing.regret import Standing, regret_spec, standings
from sidelight.drawing.stages import Picture
from sidelight.errors import InputError
from sidelight.labels import counted

__all__ = ["Regret"]

COLUMNS = ("learner", "seed", "round", "regret")


class Regret:
    """The regret of the learners of a simulation: printed, shown in a notebook, drawn.

    Regret is what a learner has lost against always taking the arm with the largest mean reward.

    Args:
        table: what ``simulate`` returned.
        baseline: the learner that the others are compared with, seed by seed; the first, if left out.

    Examples:
        >>> import sidelight as sl
        >>> table = sl.simulate(
        ...     sl.worlds.ConfoundedWorld(seed=0, n_arms=2, n_features=4, n_hidden=1),
        ...     {"wide": lambda run: sl.OFUL(2, 4), "narrow": lambda run: sl.OFUL(2, 4, alpha=0.1)},
        ...     horizon=200, seeds=3, workers=1,
        ... )
        >>> found = sl.Regret(table, baseline="wide")
        >>> [row.learner for row in found.standings]
        ['wide', 'narrow']
        >>> found.plot().save("regret.svg")  # doctest: +SKIP
    """

    def __init__(self, table: pa.Table, baseline: str | None = None) -> None:
        missing = [name for name in COLUMNS if name not in table.column_names]
        if missing:
            raise InputError(
                f"This table has no column {' nor '.join(map(repr, missing))}: Regret takes what simulate returns, "
                f"with the columns {', '.join(COLUMNS)}."
            )
        if not table.num_rows:
            raise InputError("This table has no rows, so there is no regret to compare.")
        self.table = table
        self.baseline: str = table["learner"][0].as_py() if baseline is None else baseline
        self.standings: list[Standing] = standings(table, self.baseline)

    @property
    def rounds(self) -> int:
        """The number of rounds that were played."""
        last: int = max(self.table["round"].to_pylist())
        return last

    def to_table(self) -> pa.Table:
        """The standings as an Arrow table: one row for each learner, intervals of 95 %."""
        return pa.Table.from_pylist([row.to_dict() for row in self.standings])

    def plot(self, title: str = "", subtitle: str | Sequence[str] = "", emphasis: str | None = None) -> Picture:
        """Mean regret over the rounds, with the interval over seeds as a band. Needs the extra ``figures``.

        Args:
            title: above the picture; one that says what is drawn, if left out.
            subtitle: below the title; one line, or several.
            emphasis: the learner whose line is heavier.

        Raises:
            MissingExtraError: the packages that draw are not installed.
        """
        specification = regret_spec(
            self.table,
            title=title or f"Regret over {counted(self.rounds, 'round')}",
            subtitle=subtitle or f"Mean of {counted(self.standings[0].seeds, 'seed')}; the bands are 95 % intervals",
            emphasis=emphasis,
            baseline=self.baseline,
        )
        return Picture(svg(specification))

    def _rows(self) -> list[tuple[str, str, str, str]]:
        """Learner, mean, its interval, and the paired difference to the baseline with its interval."""
        rows = []
        for row in self.standings:
            apart = number(row.difference, sign=True)
            if row.seeds > 1:
                apart += f" ({span(row.paired, sign=True)})"
            rows.append((row.learner, number(row.mean), span(row.final), "" if row.learner == self.baseline else apart))
        return rows

    @property
    def _lead(self) -> str:
        return f"Regret after {counted(self.rounds, 'round')}, {counted(self.standings[0].seeds, 'seed')}"

    @property
    def _header(self) -> tuple[str, str, str, str]:
        return ("learner", "regret", "95% interval", f"minus {self.baseline!r}")

    def __repr__(self) -> str:
        lines = [self._header, *self._rows()]
        widths = [max(len(line[i]) for line in lines) for i in range(4)]
        told = [
            "  ".join([line[0].ljust(widths[0]), *(line[i].rjust(widths[i]) for i in (1, 2, 3))]).rstrip()
            for line in lines
        ]
        return "\n".join([self._lead, *told])

    def _repr_html_(self) -> str:
        return card(self._lead, caption="Mean over seeds", header=self._header, rows=self._rows())
