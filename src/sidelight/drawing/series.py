"""How each line is drawn: its colour, dash and weight; and which learner gets which.

No information is given by colour alone: each series also has its own dash or its own position.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from sidelight.drawing.colours import PALETTE

__all__ = ["DASHES", "RAMP", "Series", "learner_series", "ramp_variables"]

RAMP = {
    "light": ["#6a737d", "#c9a400", "#6f9e2e", "#1f8a70", "#20639b", "#43308a", "#2b1055"],
    "dark": ["#a7b0ba", "#fff3a0", "#c5e06a", "#5fd3a5", "#4fb3e8", "#9d8df5", "#d9a7f0"],
}
"""Ordered colours, after one for "none": lightness (on dark: hue) changes steadily, with colour blindness too."""

DASHES: tuple[tuple[int, ...], ...] = ((1, 0), (6, 4), (2, 3), (10, 3), (8, 3, 2, 3), (4, 2), (12, 4, 2, 4), (3, 3))


def ramp_variables(theme: str) -> str:
    """The ordered colours of a theme as CSS variables."""
    return " ".join(f"--ramp-{i}: {colour};" for i, colour in enumerate(RAMP[theme]))


@dataclass(frozen=True)
class Series:
    """How one line, or one kind of points, is drawn: its name, colour and dash.

    Attributes:
        name: as the reader sees it, and as the rows' ``series`` holds it.
        colour: position in the palette, or in the ramp if ``ordered``.
        dash: lengths of ink and gap; ``(1, 0)`` is solid.
        heavy: drawn heavier than the others.
        ordered: the colour is one of the ramp.
    """

    name: str
    colour: int
    dash: tuple[int, ...] = (1, 0)
    heavy: bool = False
    ordered: bool = False

    def ink(self, theme: str) -> str:
        """Its colour: of the theme, or the name of the page's variable."""
        table = RAMP if self.ordered else PALETTE
        position = self.colour % len(table["light"])
        return (
            f"var(--{'ramp' if self.ordered else 'colour'}-{position})" if theme == "page" else table[theme][position]
        )


_BASELINE, _BEST = 0, 4
"""Places in the palette that no other learner gets."""


def learner_series(names: Sequence[str], baseline: str, best: str | None = None) -> list[Series]:
    """The colour and dash of each learner, which depend on the learners alone and not on what else is drawn.

    Args:
        names: the learners, in order.
        baseline: what the others are compared with: grey and solid.
        best: the one to look at: blue, solid and heavy.
    """
    places = [place for place in range(len(PALETTE["light"])) if place not in (_BASELINE, _BEST)]
    others = [name for name in names if name not in (baseline, best)]
    colour = {name: places[i % len(places)] for i, name in enumerate(others)}
    out = []
    for i, name in enumerate(names):
        if name == baseline:
            out.append(Series(name, _BASELINE))
        elif name == best:
            out.append(Series(name, _BEST, heavy=True))
        else:
            out.append(Series(name, colour[name], DASHES[1 + i % (len(DASHES) - 1)]))
    return out
