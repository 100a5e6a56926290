"""``DosingWorld``: chemotherapy dosing, with the socioeconomic covariates removed from the records.

The first of the paper's two stories as a small simulator. The numbers are invented and mean nothing medical; what is
meant is the structure: clinicians saw, and were moved by, what privacy rules then removed, and it mattered for the
outcome too.
"""

from __future__ import annotations

import numpy as np

from sidelight.logs.schema.features import Category, Feature, Number
from sidelight.logs.schema.schema import Schema
from sidelight.worlds.linear import LinearWorld
from sidelight.worlds.protocol import Floats

STAGES = ("I", "II", "III", "IV")
DOSES = {"75 %": 0.75, "100 %": 1.0, "125 %": 1.25}
CLINICAL = ("stage", "weight", "white_cells", "age", "illnesses")
SOCIOECONOMIC = ("income", "distance", "lives_alone")

# How much a full dose helps (columns as ``CONTEXT`` below): more at higher stages, less with age, few white cells,
# illnesses, and where nobody watches over the patient at home or the clinic is far.
_NEED = np.array([2.10, 0.25, 0.60, 0.90, 0.12, 0.22, -0.25, -0.22, 0.30, -0.28, -0.45])
# What does not depend on the dose: the patient's prospects.
_PROSPECT = np.array([1.00, -0.30, -0.80, -1.60, 0.05, 0.10, -0.25, -0.20, 0.35, -0.15, -0.20])
# The weekly schedule spares toxicity but asks for many journeys.
_WEEKLY = np.array([-0.20, 0.00, -0.05, -0.15, 0.00, -0.15, 0.20, 0.15, 0.10, -0.45, 0.10])
_CURVATURE = 1.15
_CLIP = 3.0


class DosingWorld(LinearWorld):
    """Four ways to dose a chemotherapy; reward is a response score (higher is better, about −1 to 4).

    ================  =========  =======================================================  =============
    feature           kind       unit                                                     in the records
    ================  =========  =======================================================  =============
    (intercept)                  1                                                        always
    ``stage``         category   tumour stage I to IV                                     yes
    ``weight``        number     (kg − 70)/15                                             yes
    ``white_cells``   number     (10⁹ per litre − 6)/2                                    yes
    ``age``           number     (years − 60)/12                                          yes
    ``illnesses``     number     concurrent illnesses, 0 to 4                             yes
    ``income``        number     standard deviations from the mean of log income          removed
    ``distance``      number     standard deviations from the mean of log km to clinic    removed
    ``lives_alone``   number     0 or 1                                                   removed
    ================  =========  =======================================================  =============

    Arms: ``"75 %"``, ``"100 %"``, ``"125 %"`` of the guideline dose, and ``"weekly"``: the guideline dose in weekly
    parts. With the dose ``z_a`` the mean reward is ``prospect·x + z_a need·x − 1.15 z_a²`` (plus what the weekly
    schedule changes), linear in ``x`` for each arm, so that a patient of greater need wants the larger dose.

    Socioeconomic covariates go together with stage (late diagnosis), illnesses and age, and they move both the outcome
    and the clinician: the well-off get the intensified dose, those who live far away are spared the weekly schedule,
    those who live alone get the reduced dose. Numbers are clipped at 3 (hence ``context_bound``).

    Args:
        noise: ``σ`` of the response score.
        bias: How much the clinicians heed the socioeconomic covariates; 0 leaves a log whose policy saw only what it
            recorded.
        sharpness: How firmly they decide.

    Example:
        >>> from sidelight.worlds.dosing import DosingWorld
        >>> world = DosingWorld()
        >>> world.schema(world.default_recorded).n_recorded, world.n_features
        (8, 11)
    """

    def __init__(self, *, noise: float = 0.6, bias: float = 1.0, sharpness: float = 2.0) -> None:
        features: list[str | Feature] = [
            Category("stage", STAGES),
            *(Number(name) for name in (*CLINICAL[1:], *SOCIOECONOMIC)),
        ]
        schema = Schema(features, CLINICAL, arm="regimen", reward="response", arms=(*DOSES, "weekly"), intercept=True)
        doses = np.array([*DOSES.values(), 1.0])
        weights = _PROSPECT + doses[:, None] * _NEED
        weights[:, 0] -= _CURVATURE * doses**2
        weights[3] += _WEEKLY
        super().__init__(weights, noise, schema=schema)
        # Clinicians follow the clinical part of the truth, and lean on what they know of the patient's circumstances.
        self._rules = sharpness * weights
        self._rules[:, 8:] = bias * np.array([[-0.6, 0.5, 1.6], [0.0, -0.2, 0.0], [1.4, -0.2, -1.4], [-0.2, -1.3, 0.2]])

    @property
    def default_recorded(self) -> tuple[str, ...]:
        """The clinical features: all that privacy rules left in the records."""
        return CLINICAL

    @property
    def context_bound(self) -> float:
        """``S_x``: the intercept, one stage, five numbers within ±3, up to 4 illnesses, and ``lives_alone``."""
        return float(np.sqrt(1 + 1 + 5 * _CLIP**2 + 4**2 + 1))

    def contexts(self, n: int, rng: np.random.Generator) -> Floats:
        """``X`` ``(n, 11)``: features of ``n`` patients, drawn independently."""
        income, distance, age, weight, cells, latent = np.clip(rng.standard_normal((6, n)), -_CLIP, _CLIP)
        uniforms = rng.random((2, n))
        stage = np.digitize(0.8 * latent - 0.5 * income + 0.2 * age, [-0.7, 0.2, 1.0])
        illnesses = np.minimum(np.floor(-np.log(uniforms[0]) * np.exp(0.25 * age - 0.3 * income) * 0.8), 4.0)
        alone = uniforms[1] < 1 / (1 + np.exp(1.0 - 0.5 * age + 0.5 * income))
        X = np.zeros((n, self.n_features))
        X[:, 0] = 1.0
        for level in (1, 2, 3):  # stage I is the baseline
            X[:, level] = stage == level
        X[:, 4] = np.clip(weight + 0.2 * income, -_CLIP, _CLIP)
        X[:, 5] = np.clip(cells - 0.3 * age, -_CLIP, _CLIP)
        X[:, 6], X[:, 7], X[:, 8] = age, illnesses, income
        X[:, 9] = np.clip(0.9 * distance - 0.3 * income, -_CLIP, _CLIP)
        X[:, 10] = alone
        return X

    def behavior_logits(self, X: Floats) -> Floats:
        """``(n, 4)``: logits of the schedule that the clinicians choose; their softmax is the old policy."""
        logits: Floats = X @ self._rules.T
        return logits
