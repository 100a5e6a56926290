"""The documentation builds without a warning and asks nothing of a network: it works from a file."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

import sidelight as sl

ROOT = Path(__file__).parents[2]
#: what a browser fetches by itself, unlike a link that somebody follows
FETCHED = re.compile(r"<(?:script|link|img|iframe|source)\b[^>]*?\b(?:src|href)=\"((?:https?:)?//[^\"]*)\"")


@pytest.mark.timeout(1200)  # it takes more than a minute of processor time, and the machine may be busy
def test_the_site_builds_and_stands_alone(tmp_path: Path) -> None:
    """One test, for building takes most of its time, and workers that share tests do not share what they built."""
    environment = {**os.environ, "PYTHONPATH": str(ROOT / "src"), "OMP_NUM_THREADS": "1"}
    done = subprocess.run(
        [sys.executable, "-m", "sphinx", "-q", "-W", "-b", "html", str(ROOT / "docs"), str(tmp_path)],
        env=environment,
        capture_output=True,
        text=True,
        check=False,
        timeout=1100,
    )
    assert done.returncode == 0, done.stderr
    pages_fetch_nothing_from_elsewhere(tmp_path)
    links_between_pages_lead_somewhere(tmp_path)
    the_reference_has_every_public_name_and_every_command(tmp_path)


def pages_fetch_nothing_from_elsewhere(site: Path) -> None:
    found = {
        (page.name, address)
        for page in site.rglob("*.html")
        for address in FETCHED.findall(page.read_text(encoding="utf-8"))
    }
    assert not found
    for sheet in site.rglob("*.css"):
        assert not re.search(r"url\(\s*[\"']?(?:https?:)?//", sheet.read_text(encoding="utf-8")), sheet.name


def links_between_pages_lead_somewhere(site: Path) -> None:
    for page in site.rglob("*.html"):
        for target in re.findall(r"<a\b[^>]*?\bhref=\"([^\"#]+)", page.read_text(encoding="utf-8")):
            if "://" not in target and not target.startswith("mailto:"):
                assert (page.parent / target).exists(), f"{page.relative_to(site)} links to {target}"


def the_reference_has_every_public_name_and_every_command(site: Path) -> None:
    from sidelight.cli import COMMANDS

    pages = sorted((site / "reference" / "api").glob("*.html"))
    api = "".join(page.read_text(encoding="utf-8") for page in pages)
    assert max(page.stat().st_size for page in pages) < 300_000  # a page that opens at once
    for name in sl._HOMES:
        if name not in ("SidelightError", "SidelightWarning"):
            assert f'id="sidelight.{name}"' in api, name
    for name in ("SidelightError", "SidelightWarning", "InvalidRowsError"):
        assert f'id="sidelight.errors.{name}"' in api, name
    cli = (site / "reference" / "cli.html").read_text(encoding="utf-8")
    for command in COMMANDS:
        assert f'id="sidelight-{command}"' in cli, command
