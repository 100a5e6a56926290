"""``TrafficWorld``: signal timing, with vehicle classes that the cameras learned to tell apart over the years.

The second of the paper's two stories as a small simulator: the old controller reacted to everything on the road, the
log of each era recorded the classes that the cameras of the day could label.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import pyarrow as pa

from sidelight.errors import InputError
from sidelight.logs.schema.schema import Schema
from sidelight.worlds.linear import CHUNK_ROWS, LinearWorld
from sidelight.worlds.log_batches import log_batch
from sidelight.worlds.protocol import Floats

FEATURES = (
    "rain",
    "cars_north",
    "cars_east",
    "trucks_north",
    "trucks_east",
    "buses_north",
    "buses_east",
    "bicycles",
    "pedestrians",
    "scooters",
)
ERAS = {2012: 3, 2016: 7, 2020: 9}
"""First year of an era → how many of ``FEATURES`` its cameras recorded; scooters are labelled only now."""

PLANS = ("north 70 %", "north 60 %", "even", "east 60 %", "east 70 %", "all-walk")

# Typical flow per minute in tens, and how much of it follows the common rush, the north-south tide, or the weather.
_MEAN = np.array([0.0, 1.6, 1.4, 0.30, 0.40, 0.15, 0.12, 0.50, 0.90, 0.25])
_RUSH = np.array([0.0, 0.35, 0.35, -0.10, -0.10, 0.30, 0.30, 0.35, 0.30, 0.30])
_TIDE = np.array([0.0, 0.30, -0.30, 0.25, -0.25, 0.20, -0.20, 0.00, 0.05, 0.10])
_WEATHER = np.array([0.0, 0.10, 0.10, 0.00, 0.00, 0.10, 0.10, -0.70, -0.40, -0.60])
# Minutes of waiting per tens of vehicles at even green; heavy and slow classes block the road for the others.
_LOAD = np.array([0.0, 0.50, 0.50, 1.40, 1.40, 1.10, 1.10, 0.35, 0.45, 0.55])
_LIMIT = 4.0


class TrafficWorld(LinearWorld):
    """Six signal plans at a crossing; reward is minutes of waiting saved against a fixed plan (higher is better).

    Features: an intercept (always recorded), ``rain`` (0 or 1), and flows in tens per minute, at most 4: ``cars``,
    ``trucks`` and ``buses`` from the north and from the east, ``bicycles``, ``pedestrians``, ``scooters``. Plans: the
    share of green for the northern approach, and an all-walk phase. A plan's reward is linear in the flows: green
    serves its own approach and delays the other, the all-walk phase serves those on foot and on two wheels.

    Flows share a rush hour, a north-south tide and the weather, so hidden classes are partly predictable from recorded
    ones; the old controller sensed all of them by its induction loops and buttons.

    :meth:`sample_eras_log` gives the log as it is in reality: years of it, older rows without the newer columns.

    Args:
        seed: Draws small differences between plans.
        noise: ``σ`` in minutes.
        sharpness: How firmly the old controller decided.

    Example:
        >>> import numpy as np
        >>> from sidelight.worlds.signals import TrafficWorld
        >>> log = TrafficWorld(seed=0).sample_eras_log(300, np.random.default_rng(0))
        >>> log["scooters"].null_count, log["cars_north"].null_count
        (300, 0)
    """

    def __init__(self, *, seed: int, noise: float = 0.5, sharpness: float = 3.0) -> None:
        rng = np.random.default_rng(seed)
        schema = Schema(FEATURES, FEATURES[:7], arm="plan", reward="minutes_saved", arms=PLANS, intercept=True)
        d = len(FEATURES) + 1
        north = np.array([name.endswith("north") for name in FEATURES], dtype=float)
        east = np.array([name.endswith("east") for name in FEATURES], dtype=float)
        walkers = np.array([name in ("bicycles", "pedestrians", "scooters") for name in FEATURES], dtype=float)
        weights = np.zeros((len(PLANS), d))
        for arm, green in enumerate((0.7, 0.6, 0.5, 0.4, 0.3)):
            tilt = green - 0.5
            weights[arm, 1:] = _LOAD * (2.5 * tilt * north - 2.5 * tilt * east - 0.9 * abs(tilt) * walkers)
            weights[arm, 0] = -8.0 * tilt**2
        weights[5, 1:] = _LOAD * (1.5 * walkers - 0.35 * north - 0.35 * east)
        weights[5, 0] = -0.3
        weights[:, 1] = [0.0, 0.0, 0.05, 0.0, 0.0, -0.15]  # in the rain fewer dare to walk
        weights += 0.02 * rng.standard_normal(weights.shape)
        super().__init__(weights, noise, schema=schema)
        # The controller weighs two-wheelers and walkers by their buttons and trucks by their length, not by delay.
        heed = np.concatenate([[1.0, 0.5], np.array([0.8, 0.8, 1.6, 1.6, 0.4, 0.4, 1.6, 1.6, 1.8])])
        self._rules = sharpness * weights * heed

    @property
    def default_recorded(self) -> tuple[str, ...]:
        """What the cameras of 2016 to 2019 told apart."""
        return FEATURES[:7]

    @property
    def eras_schema(self) -> Schema:
        """For reading :meth:`sample_eras_log`, era by era: recorded is what any of the eras recorded."""
        return self.schema(max(ERAS.values()))

    @property
    def context_bound(self) -> float:
        """``S_x``: intercept and rain at most 1, nine flows at most 4."""
        return float(np.sqrt(1 + 1 + 9 * _LIMIT**2))

    def contexts(self, n: int, rng: np.random.Generator) -> Floats:
        """``X`` ``(n, 11)``: minutes of traffic."""
        rush, tide, wet = rng.standard_normal((3, n, 1))
        own = rng.standard_normal((n, len(FEATURES)))
        rain = wet > 0.8
        exponent = _RUSH * rush + _TIDE * tide + _WEATHER * rain + 0.3 * own
        X = np.ones((n, self.n_features))
        X[:, 1:] = np.minimum(_MEAN * np.exp(exponent), _LIMIT)
        X[:, 1] = rain[:, 0]
        return X

    def behavior_logits(self, X: Floats) -> Floats:
        """``(n, 6)``: logits of the plan that the old controller chooses; their softmax is the old policy."""
        logits: Floats = X @ self._rules.T
        return logits

    def sample_eras_log(
        self, n: int, rng: np.random.Generator, *, shares: Sequence[float] = (0.4, 0.35, 0.25)
    ) -> pa.Table:
        """``n`` rows of three eras in order of time: ``year``, all features (null where not yet labelled), plan,
        reward.

        The policy and the traffic are the same in all eras; only the cameras changed. ``shares`` are the eras' parts
        of the rows. ``scooters`` is null throughout: online is the first time that anybody labels them.
        """
        if len(shares) != len(ERAS) or min(shares) < 0 or abs(sum(shares) - 1) > 1e-9:
            raise InputError(f"shares={tuple(shares)}: give {len(ERAS)} parts that are not negative and sum to 1.")
        bounds = np.round(n * np.concatenate([[0.0], np.cumsum(shares)])).astype(int)
        starts = [*ERAS, 2024]
        everything = self.schema(list(FEATURES))
        batches = []
        for era, (first, count) in enumerate(ERAS.items()):
            # at least one batch, so that a log without rows has its columns too
            for start in range(bounds[era], max(bounds[era + 1], bounds[era] + 1), CHUNK_ROWS):
                rows = min(CHUNK_ROWS, bounds[era + 1] - start)
                batch = log_batch(everything, *self._logged(rows, rng))
                columns = {"year": pa.array(rng.integers(first, starts[era + 1], size=rows))}
                for index, name in enumerate(batch.schema.names):
                    unseen = name in FEATURES[count:]
                    columns[name] = pa.nulls(rows, pa.float64()) if unseen else batch.column(index)
                batches.append(pa.record_batch(columns))
        table = pa.Table.from_batches(batches)
        return table.sort_by("year")
