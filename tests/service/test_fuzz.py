"""Requests made from the service's own description, by Schemathesis, with all of its checks."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from sidelight.service.core.starting import open_store
from sidelight.service.http.auth import SCOPES, create_token
from tests.service.helpers import make_config, serving

ROOT = Path(__file__).parents[2]
schemathesis = pytest.importorskip("schemathesis")


@pytest.mark.parametrize(
    "answers", ["queries", "probabilities"] if "SIDELIGHT_FUZZ_EXAMPLES" in os.environ else ["queries"]
)
def test_generated_requests_find_nothing(tmp_path: Path, answers: str):
    config = make_config(tmp_path, kind="RunningOFUL", mode="act", answers=answers, limits={"batch": 5})
    store = open_store(config)
    token = create_token(store, "fuzz", SCOPES)
    store.close()
    examples = os.environ.get("SIDELIGHT_FUZZ_EXAMPLES", "8")
    with serving(tmp_path) as server:
        done = subprocess.run(
            [
                *(sys.executable, "-m", "schemathesis.cli", "run", f"{server.url}/openapi.json"),
                *("--checks", "all", "--phases", "examples,coverage,fuzzing,stateful"),
                *("--max-examples", examples, "--seed", "42", "--header", f"Authorization: Bearer {token}"),
                *("--suppress-health-check", "all", "--no-color", "--workers", "1"),
            ],
            capture_output=True,
            text=True,
            timeout=1500,
            check=False,
            cwd=tmp_path,
            env={**os.environ, "SCHEMATHESIS_HOOKS": "tests.service.fuzz_hooks", "PYTHONPATH": str(ROOT)},
        )
        assert done.returncode == 0, done.stdout[-6000:] + done.stderr[-2000:]
        assert server.process.poll() is None
