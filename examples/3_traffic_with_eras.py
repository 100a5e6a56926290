"""A log with eras: the cameras of a junction learned to tell more kinds of vehicles over the years.

Each era is a log of its own with its own hidden features; the fused learner takes them all. Online one more kind is
labelled that no era knew.
"""

import numpy as np

import sidelight as sl
from sidelight.worlds.signals import TrafficWorld

rng = np.random.default_rng(0)
junction = TrafficWorld(seed=0)
log = junction.sample_eras_log(60_000, rng)
eras = sl.summarize_eras(log, junction.eras_schema)
for era, summary in eras.items():
    print(f"{summary.n_rows:6,} rows record {summary.n_recorded} of {summary.n_features} features: {era}")

learner = sl.FusedOFUL({era: sl.BehaviorQueries(summary) for era, summary in eras.items()})
cold = sl.OFUL(junction.n_arms, junction.n_features, arms=junction.arms, noise=junction.noise, radius="posterior")

lost = {"with the eras": 0.0, "cold": 0.0}
X = junction.contexts(1_500, rng)
means, answers = junction.mean_rewards(X), junction.behavior_actions(X, rng)
noise = junction.noise * rng.standard_normal(len(X))
for t, x in enumerate(X):
    for era in eras:  # the controller was the same in all eras
        learner.observe_behavior(x, answers[t], log=era)
    for name, one in (("with the eras", learner), ("cold", cold)):
        a = junction.arms.index(one.decide(x).arm)
        one.observe(x, junction.arms[a], means[t, a] + noise[t])
        lost[name] += means[t].max() - means[t, a]
print("regret after 1,500 minutes of traffic:", {name: round(value) for name, value in lost.items()})
