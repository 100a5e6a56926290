"""Charts in a page: the drawing, a legend of buttons, the reader's choices, and the numbers as a table.

The page carries its own drawing script, so it asks nothing of a network. Colours come from the page's style sheet, so
one drawing serves light, dark and print, and changes with them at once.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from html import escape
from typing import Any

from sidelight.drawing.charts import Chart
from sidelight.drawing.image_files import javascript
from sidelight.drawing.series import Series, ramp_variables
from sidelight.drawing.vega_lite import specification

__all__ = ["STYLE", "figure", "script"]


def figure(
    name: str, chart: Chart, *, describes: str, words: Sequence[str] = (), numbers: str = "", height: int = 340
) -> tuple[str, dict[str, Any]]:
    """One chart of a page: its HTML, and its specification for :func:`script`.

    Args:
        name: a name that no other chart of the page has.
        chart: what is drawn.
        describes: one sentence for screen readers.
        words: paragraphs under the picture.
        numbers: its numbers, as made by ``drawing.markup.table``.
        height: of the plot in pixels.
    """
    choices = "".join(
        f'<label>{escape(control.label)} <select data-choice="choice_{i}">'
        + "".join(
            f"<option{' selected' if option == control.chosen else ''}>{escape(option)}</option>"
            for option in control.options
        )
        + "</select></label>"
        for i, control in enumerate(chart.controls)
    )
    legend = "" if chart.kind == "grid" or len(chart.series) < 2 else _legend(chart)
    caption = "".join(f"<p>{escape(text)}</p>" for text in words)
    table = f"<details><summary>The numbers of this picture</summary>{numbers}</details>" if numbers else ""
    controls = f'<div class="choices">{choices}</div>' if choices else ""
    html = (
        f'<figure class="chart" id="{escape(name)}">{controls}{legend}'
        # two elements, because Vega sets an ARIA role on the inner one
        f'<div role="img" aria-label="{escape(describes)}"><div class="plot" style="min-height:{height}px"></div></div>'
        f"<figcaption>{caption}</figcaption>{table}</figure>\n"
    )
    return html, specification(chart, "page", height=height)


def _legend(chart: Chart) -> str:
    buttons = "".join(
        f'<button type="button" aria-pressed="true" data-series="{escape(series.name)}">{_swatch(series, chart, i)}'
        f"{escape(series.name)}</button>"
        for i, series in enumerate(chart.series)
    )
    return f'<div class="legend" role="group" aria-label="What is shown; press to hide or show">{buttons}</div>'


def _swatch(series: Series, chart: Chart, position: int) -> str:
    ink = series.ink("page")
    if chart.kind == "points":
        shapes = (
            '<circle cx="8" cy="6" r="4.5"/>',
            '<rect x="4" y="2" width="8" height="8"/>',
            '<path d="M8 1l5 9H3z"/>',
            '<path d="M8 0l4 6-4 6-4-6z"/>',
            '<path d="M6 1h4v3h3v4h-3v3H6V8H3V4h3z"/>',
            '<path d="M8 11l5-9H3z"/>',
            '<path d="M13 6L4 1v10z"/>',
            '<path d="M3 5h10v2H3z"/>',
        )
        shape = shapes[position % len(shapes)]
        return f'<svg width="16" height="12" aria-hidden="true" style="fill:{ink}">{shape}</svg>'
    dash = " ".join(map(str, series.dash)) if series.dash != (1, 0) else "none"
    width = 3.4 if series.heavy else 2
    return (
        '<svg width="30" height="12" aria-hidden="true"><line x1="1" y1="6" x2="29" y2="6" '
        f'style="stroke:{ink};stroke-width:{width};stroke-dasharray:{dash}"/></svg>'
    )


def script(specifications: Mapping[str, Mapping[str, Any]]) -> str:
    """The end of the page: the drawing script, the specifications, and what makes buttons and choices work."""
    # "</" would end the script element that carries the numbers
    data = json.dumps(dict(specifications), separators=(",", ":"), allow_nan=False).replace("</", "<\\/")
    return (
        "<noscript><p>The pictures need JavaScript; all their numbers are in the tables.</p></noscript>"
        f"<script>{javascript()}</script>\n"
        f'<script id="specifications" type="application/json">{data}</script>\n'
        f"<script>{_BEHAVIOUR}</script>\n"
    )


_BEHAVIOUR = """
(() => {
  const specifications = JSON.parse(document.getElementById("specifications").textContent);
  const drawn = [];
  for (const [name, specification] of Object.entries(specifications)) {
    const place = document.getElementById(name);
    const plot = place.querySelector(".plot");
    const waiting = vegaEmbed(plot, specification, {actions: false, renderer: "svg", tooltip: {theme: "page"}});
    drawn.push(waiting);
    waiting.then(({view}) => {
      // the whole drawing is one image with one description; its hundreds of marks are not worth a stop each
      plot.setAttribute("aria-hidden", "true");
      const buttons = [...place.querySelectorAll("button[data-series]")];
      for (const button of buttons) button.addEventListener("click", () => {
        button.setAttribute("aria-pressed", String(button.getAttribute("aria-pressed") !== "true"));
        const shown = buttons.filter(b => b.getAttribute("aria-pressed") === "true").map(b => b.dataset.series);
        view.signal("shown", shown).runAsync();
      });
      for (const select of place.querySelectorAll("select[data-choice]")) select.addEventListener("change", () => {
        view.signal(select.dataset.choice, select.value).runAsync();
      });
      view.runAsync();
    });
  }
  Promise.all(drawn).then(() => { document.documentElement.dataset.drawn = "yes"; });
  let closed = [];
  addEventListener("beforeprint", () => {
    closed = [...document.querySelectorAll("details:not([open])")];
    for (const part of closed) part.open = true;
  });
  addEventListener("afterprint", () => { for (const part of closed) part.open = false; });
})();
"""

STYLE = f"""<style>
:root {{ {ramp_variables("light")} --soft: #f5f6f8; }}
@media (prefers-color-scheme: dark) {{ :root {{ {ramp_variables("dark")} --soft: #1c2026; }} }}
figure.chart {{ margin: .8rem 0 1.6rem; }}
.plot {{ width: 100%; display: block !important; }}
.plot svg {{ max-width: 100%; display: block; overflow: visible; }}
.plot summary {{ display: none; }}
figcaption p {{ margin: .35rem 0; }}
a {{ color: var(--colour-4); }}
.contents {{ padding-left: 1.1rem; line-height: 1.7; }}
.contents small {{ color: var(--grey); }}
.legend {{ display: flex; flex-wrap: wrap; gap: .3rem .4rem; margin: .2rem 0 .4rem; }}
.legend button, .choices select {{ font: inherit; font-size: .88rem; color: var(--ink); background: var(--soft);
  border: 1px solid var(--line); border-radius: 999px; padding: .22rem .7rem; min-height: 2rem; cursor: pointer; }}
.legend button {{ display: inline-flex; align-items: center; gap: .45rem; }}
.legend button[aria-pressed="false"] {{ color: var(--grey); background: transparent; text-decoration: line-through; }}
.legend button[aria-pressed="false"] svg {{ opacity: .25; }}
.choices {{ display: flex; flex-wrap: wrap; gap: .4rem 1rem; margin: .2rem 0 .6rem; color: var(--grey);
  font-size: .92rem; }}
:focus-visible {{ outline: 3px solid var(--colour-4); outline-offset: 2px; }}
details summary {{ cursor: pointer; color: var(--grey); font-size: .92rem; padding: .3rem 0; }}
details .scroll {{ max-height: 26rem; overflow: auto; }}
#vg-tooltip-element {{ font: .85rem/1.4 inherit; background: var(--paper); color: var(--ink);
  border: 1px solid var(--line); border-radius: 6px; padding: .5rem .7rem; box-shadow: 0 4px 18px #0003; }}
#vg-tooltip-element table tr td.key {{ color: var(--grey); }}
@media print {{
  :root {{ {ramp_variables("light")} --soft: #fff; }}
  .legend button {{ border: 0; padding: 0 .6rem 0 0; }}
  .legend button[aria-pressed="false"], .choices select {{ display: none; }}
  figure.chart {{ break-inside: avoid; }}
  details .scroll {{ max-height: none; overflow: visible; }}
}}
</style>
"""
