"""What the other tests stand on."""

from __future__ import annotations

from dataclasses import replace

import httpx
import numpy as np

from sidelight.service.config import save_config
from tests.service.helpers import make_config, post, random_context, serving


def test_a_server_that_logs_a_lot_is_not_stopped_by_its_pipe(tmp_path):
    """A line for each decision, and more of them than a pipe holds."""
    config = make_config(tmp_path, kind="OFUL", mode="act")
    config = replace(config, logs=replace(config.logs, level="info", decisions=True))
    save_config(config, tmp_path / "sidelight.toml")
    rng = np.random.default_rng(0)
    body = {"decisions": [{"context": random_context(rng)} for _ in range(500)]}
    with serving(tmp_path) as server, httpx.Client(base_url=server.url, timeout=20) as client:
        while len(server.errors) < 100_000:
            assert post(client, "/v1/decisions/batch", body).status_code == 201
    assert "decision" in server.errors
