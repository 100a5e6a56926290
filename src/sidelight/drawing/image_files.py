"""From a Vega-Lite specification to files, and to a page that needs no network."""

from __future__ import annotations

from collections.abc import Mapping
from functools import cache
from importlib.util import find_spec
from pathlib import Path
from typing import Any

from sidelight.errors import InputError, MissingExtraError, how_to_install

__all__ = ["javascript", "need_pictures", "pictures", "render", "svg"]

#: pixels of a PNG for each pixel of a specification
_SCALE = 2.0


def need_pictures() -> None:
    """Check that the packages that draw are installed; commands call this before minutes of work.

    Raises:
        MissingExtraError: the extra ``figures`` is not installed.
    """
    missing = [name for name in ("altair", "vl_convert") if find_spec(name) is None]
    if missing:
        needed = " and ".join(missing)
        raise MissingExtraError(f"Pictures need {needed}, which is not installed: {how_to_install('figures')}.")


def pictures(specification: Mapping[str, Any], path: Path) -> list[Path]:
    """Write a picture as PNG and as SVG: ``path`` with either ending."""
    converter = _converter()
    path.parent.mkdir(parents=True, exist_ok=True)
    drawn = svg(specification)
    png, vector = path.with_name(f"{path.name}.png"), path.with_name(f"{path.name}.svg")
    vector.write_text(drawn, encoding="utf-8")
    # converted from the SVG, in a third of the time of rendering the specification again
    png.write_bytes(converter.svg_to_png(drawn, scale=_SCALE))
    return [png, vector]


def render(specification: Mapping[str, Any], path: Path) -> Path:
    """Write a picture as PNG or SVG, by the name's ending."""
    converter = _converter()
    path.parent.mkdir(parents=True, exist_ok=True)
    if path.suffix == ".svg":
        path.write_text(svg(specification), encoding="utf-8")
    elif path.suffix == ".png":
        path.write_bytes(converter.vegalite_to_png(dict(specification), scale=_SCALE))
    else:
        raise InputError(f"A picture is written as .png or .svg, not as {path.suffix!r} ({path}).")
    return path


def svg(specification: Mapping[str, Any]) -> str:
    """A picture as SVG text."""
    drawn: str = _converter().vegalite_to_svg(dict(specification))
    return drawn


@cache
def javascript() -> str:
    """The Vega libraries that draw a specification in a browser, as one script that needs no network."""
    script: str = _converter().javascript_bundle()
    return script


def _converter() -> Any:
    try:
        import vl_convert
    except ImportError:
        raise MissingExtraError(
            f"Pictures need vl-convert-python, which is not installed: {how_to_install('figures')}."
        ) from None
    return vl_convert
