"""Every pinned dependency has a hash, of the version that is pinned; no file says where anything comes from."""

from __future__ import annotations

import re
from pathlib import Path

ROOT = Path(__file__).parents[2]


def pins(name: str) -> dict[str, str]:
    lines = [line for line in (ROOT / name).read_text().splitlines() if line and not line.startswith("#")]
    found = [re.split(r"[ ;]", line)[0].partition("==") for line in lines]
    return {re.sub(r"[-_.]+", "-", package).lower(): version for package, _, version in found}


def test_hashes_are_those_of_the_pins():
    pinned, hashed = pins("constraints.txt"), pins("hashes.txt")
    assert {name: hashed.get(name) for name in pinned} == pinned, "run .ci/hashes"
    assert set(hashed) == set(pinned), "run .ci/hashes"


def test_a_line_is_a_name_a_version_and_a_hash():
    for line in (ROOT / "hashes.txt").read_text().splitlines():
        assert line.startswith("#") or re.fullmatch(r"[a-z0-9._-]+==[^ ]+ --hash=sha256:[0-9a-f]{64}", line), line
        assert "://" not in line
