"""Colours and fonts of everything Sidelight draws, for light and dark backgrounds.

The colours can be distinguished with red-green colour blindness; no information is given by colour alone.
"""

from __future__ import annotations

__all__ = ["ALARM", "FONT", "GOOD", "GREY", "INK", "LINE", "PALETTE", "PAPER", "variables"]

INK = {"light": "#1b1f24", "dark": "#e6e9ee"}
GREY = {"light": "#6a737d", "dark": "#9aa4af"}
LINE = {"light": "#e6e8eb", "dark": "#2b3138"}
PAPER = {"light": "#ffffff", "dark": "#14171b"}
ALARM = {"light": "#b3261e", "dark": "#ff8a80"}
GOOD = {"light": "#00735a", "dark": "#2ec4a0"}
PALETTE = {
    "light": ["#6a737d", "#b5651d", "#00735a", "#a3487f", "#2a84c0", "#c74a00", "#4b3fa8", "#7a6a00"],
    "dark": ["#a7b0ba", "#e69f00", "#2ec4a0", "#e08fc0", "#6cc0f5", "#ff7a3d", "#a79cff", "#e3d26f"],
}
FONT = "system-ui, -apple-system, 'Segoe UI', Roboto, 'Helvetica Neue', Arial, sans-serif"


def variables(theme: str) -> str:
    """The colours of a theme as CSS variables."""
    named = {"ink": INK, "grey": GREY, "line": LINE, "paper": PAPER, "alarm": ALARM, "good": GOOD}
    accents = {f"colour-{i}": colour for i, colour in enumerate(PALETTE[theme])}
    return " ".join(
        f"--{name}: {value};" for name, value in {**{n: c[theme] for n, c in named.items()}, **accents}.items()
    )
