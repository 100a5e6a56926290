"""The cells of the zoo: honest worlds, each the base world with a few entries changed."""

from __future__ import annotations

from dataclasses import replace

from benchmarks.synthetic import Cell

#: age, weight, income, systolic pressure, a rate, a yes/no recoded as 1/2; then a rate, a laboratory value, a
#: temperature, a concentration
CLINIC = (
    (60.0, 12.0),
    (80.0, 15.0),
    (40_000.0, 15_000.0),
    (130.0, 18.0),
    (0.3, 0.1),
    (1.4, 0.5),
    (0.02, 0.01),
    (250.0, 60.0),
    (36.8, 0.4),
    (4e-6, 1e-6),
)
POSITIVE = ((1.0, 0.5),)
TINY, HUGE = ((0.0, 1e-6),), ((0.0, 1e6),)
ONE_HUGE = ((0.0, 1.0),) * 5 + ((0.0, 1e5),) + ((0.0, 1.0),) * 4
SPREAD = tuple((0.0, 10.0**power) for power in (-4, 3, 0, -2, 5, 1, 2, -3, 0, 4))

BASE = Cell("base")

#: name → what differs from the base world
CHANGES: dict[str, dict[str, object]] = {
    "base": {},
    # units
    "units: clinic": {"units": CLINIC},
    "units: clinic, no intercept": {"units": CLINIC, "intercept": False},
    "units: spread over ten powers": {"units": SPREAD},
    "units: one recorded feature huge": {"units": ONE_HUGE},
    "units: all tiny": {"units": TINY},
    "units: all huge": {"units": HUGE},
    "units: rewards around 1,000": {"reward_shift": 1_000.0},
    "units: rewards in millionths": {"reward_unit": 1e-6},
    "units: clinic, rewards around 1,000": {"units": CLINIC, "reward_shift": 1_000.0, "reward_unit": 30.0},
    "no intercept": {"intercept": False},
    "no intercept, positive features": {"intercept": False, "units": POSITIVE},
    # strengths
    "strength: recorded weak, hidden strong": {"strengths": (0.05, 5.0)},
    "strength: the same, random policy": {"strengths": (0.05, 5.0), "policy": "random"},
    "strength: recorded weak": {"strengths": (0.1, 1.0)},
    "strength: hidden strong": {"strengths": (1.0, 3.0)},
    "strength: hidden weak": {"strengths": (1.0, 0.1)},
    "strength: hidden without effect": {"strengths": (1.0, 0.0)},
    "strength: all weak": {"strengths": (0.1, 0.1), "levels": 0.1},
    "strength: levels alone": {"strengths": (0.0, 0.0)},
    # noise
    "noise: 0.05 to 3 by arm": {"noise": (0.05, 3.0)},
    "noise: large": {"noise": (3.0, 3.0)},
    "noise: small": {"noise": (0.02, 0.02)},
    "noise: by context": {"noise_by_context": True},
    "noise: heavy tails": {"tails": "student"},
    "noise: yes or no": {"tails": "binary"},
    # distributions
    "features: uniform": {"kinds": ("uniform", "uniform")},
    "features: skewed": {"kinds": ("skewed", "skewed")},
    "features: heavy tails": {"kinds": ("heavy", "heavy")},
    "features: flags": {"kinds": ("flags", "flags")},
    "features: rare hidden flags": {"kinds": ("normal", "rare flags")},
    "features: rare recorded flags": {"kinds": ("rare flags", "normal")},
    "features: a recorded category": {"kinds": ("category", "normal")},
    "features: a hidden category": {"kinds": ("normal", "category")},
    "features: correlated 0.6": {"correlation": 0.6},
    "features: correlated 0.9": {"correlation": 0.9},
    "features: correlated and skewed": {"correlation": 0.7, "kinds": ("skewed", "skewed")},
    # the old policy
    "policy: random": {"policy": "random"},
    "policy: greedy": {"policy": "greedy"},
    "policy: sharp": {"sharpness": 4.0},
    "policy: sees hidden features alone": {"sees": (0.0, 1.5), "sharpness": 2.0},
    "policy: sees recorded features alone": {"sees": (1.5, 0.0)},
    "policy: adverse": {"policy": "adverse", "sharpness": 3.0, "strengths": (0.3, 2.0)},
    "policy: adverse, mildly": {"policy": "adverse", "sharpness": 1.0},
    "policy: adverse, correlated": {"policy": "adverse", "sharpness": 2.0, "strengths": (0.5, 1.5), "correlation": 0.6},
    "policy: skilled": {"policy": "skilled", "sharpness": 1.0},
    "policy: skilled, hidden strong": {"policy": "skilled", "sharpness": 1.0, "strengths": (0.3, 2.0)},
    "policy: unbalanced": {"imbalance": 2.0},
    "policy: two arms absent": {"absent": 2},
    # sizes
    "size: K = 2": {"arms": 2},
    "size: K = 2, weak recorded": {"arms": 2, "strengths": (0.1, 1.0)},
    "size: K = 3, L = 2, m = 2": {"arms": 3, "recorded": 2, "hidden": 2},
    "size: K = 30": {"arms": 30},
    "size: K = 200": {"arms": 200, "recorded": 10, "hidden": 5, "rows": 100_000},
    "size: d = 50": {"recorded": 40, "hidden": 10},
    "size: d = 100": {"recorded": 60, "hidden": 40, "arms": 5},
    "size: much hidden": {"recorded": 2, "hidden": 12},
    "size: little hidden": {"recorded": 12, "hidden": 1},
    "size: 300 rows": {"rows": 300},
    "size: 2,000 rows": {"rows": 2_000},
    "size: 500,000 rows": {"rows": 500_000},
    # asking and feedback
    "rounds: delay of 100": {"delay": 100},
    "rounds: batches of 50": {"batch": 50},
    "answers: a tenth of rounds": {"answered": 0.1},
    "answers: never": {"answered": 0.0},
    "answers: a tenth of rounds, sharp policy": {"answered": 0.1, "sharpness": 4.0},
    "answers: never, sharp policy": {"answered": 0.0, "sharpness": 4.0},
    "answers: a tenth of rounds, random policy": {"answered": 0.1, "policy": "random"},
    "answers: never, random policy": {"answered": 0.0, "policy": "random"},
    "answers: a tenth of rounds, hidden features alone": {"answered": 0.1, "sees": (0.0, 1.5), "sharpness": 2.0},
    "answers: never, hidden features alone": {"answered": 0.0, "sees": (0.0, 1.5), "sharpness": 2.0},
    "answers: a tenth of rounds, correlated": {"answered": 0.1, "correlation": 0.6},
    "answers: never, correlated": {"answered": 0.0, "correlation": 0.6},
    "answers: never, correlated, hidden features alone": {
        "answered": 0.0,
        "correlation": 0.6,
        "sees": (0.0, 1.5),
        "sharpness": 2.0,
    },
    "answers: never, recorded weak, hidden strong": {"answered": 0.0, "strengths": (0.05, 5.0), "policy": "random"},
    "answers: a tenth wrong": {"wrong": 0.1},
    "answers: a third wrong": {"wrong": 0.33},
    # curvature
    "curved: recorded, mildly": {"curvature": 0.2},
    "curved: recorded": {"curvature": 0.6},
    "curved: hidden": {"curvature": 0.6, "curved_in": "hidden"},
    # several logs
    "logs: two": {"logs": "two"},
    "logs: three eras": {"logs": "eras"},
    "logs: six eras": {"logs": "six eras"},
    "logs: three of the same columns": {"logs": "same columns"},
    "logs: the same columns, two small": {"logs": "same columns, sizes"},
    "logs: eras, the newest small": {"logs": "sizes"},
    "logs: eras, the newest large": {"logs": "two small"},
    "logs: eras without some arms": {"logs": "arms"},
    "logs: eras, few answers": {"logs": "eras", "answered": 0.1},
    "logs: eras, correlated and skewed": {"logs": "eras", "correlation": 0.7, "kinds": ("skewed", "skewed")},
    "logs: eras, clinic": {"logs": "eras", "units": CLINIC},
    "logs: eras, hidden strong": {"logs": "eras", "strengths": (0.3, 3.0)},
    # several at once
    "clinic as it is": {
        "units": CLINIC,
        "kinds": ("skewed", "normal"),
        "correlation": 0.4,
        "noise": (0.3, 1.2),
        "imbalance": 1.0,
        "answered": 0.5,
        "rows": 5_000,
        "arms": 4,
    },
    "shop as it is": {
        "kinds": ("flags", "skewed"),
        "tails": "binary",
        "arms": 20,
        "batch": 20,
        "rows": 100_000,
        "imbalance": 1.0,
    },
}

CELLS: dict[str, Cell] = {name: replace(BASE, name=name, **changes) for name, changes in CHANGES.items()}  # type: ignore[arg-type]

#: a dozen cells that are fast and differ most
QUICK = (
    "base",
    "units: clinic",
    "units: rewards around 1,000",
    "strength: recorded weak, hidden strong",
    "strength: hidden without effect",
    "noise: 0.05 to 3 by arm",
    "features: correlated and skewed",
    "policy: two arms absent",
    "size: K = 2, weak recorded",
    "size: d = 50",
    "answers: a tenth of rounds",
    "logs: three eras",
)
