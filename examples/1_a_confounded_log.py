"""The synthetic story: a log that misleads, what it still says, and what that is worth online.

Run it with ``python examples/1_a_confounded_log.py``; it takes a few seconds.
"""

import numpy as np

import sidelight as sl
from sidelight.drawing.regret import standings

world = sl.worlds.ConfoundedWorld(seed=3)
rng = np.random.default_rng(0)

# The old policy looked at four features that its log does not have.
schema = world.schema(world.default_recorded)
summary = sl.summarize_log(world.sample_log(50_000, world.default_recorded, rng), schema)
print(summary)

# Taken at its word, the log misjudges the constant feature of every arm: half of them too high, half too low.
misread = summary.coefficients[:, 0] - world.weights[:, 0]
print("intercepts taken from the log, minus the truth:", np.round(misread, 2))

# As side information it is right: M_a w_a = b_a, with M_a = [I, B_a].
side = sl.SideInformation.from_log(summary, world.cross_moments(world.default_recorded))
gaps = [np.abs(side.M[a] @ world.weights[a] - side.b[a]).max() for a in range(world.n_arms)]
print("largest violation of M w = b by the true weights:", np.round(max(gaps), 3))


def cold(run: sl.Run) -> sl.Learner:
    return sl.OFUL(run.world.n_arms, run.world.n_features, noise=run.world.noise, radius="posterior")


def warm(run: sl.Run) -> sl.Learner:
    return sl.FusedOFUL(sl.BehaviorQueries(run.summary))


if __name__ == "__main__":
    table = sl.simulate(
        world, {"OFUL, no log": cold, "FusedOFUL": warm}, horizon=2_000, recorded=6, log_rows=50_000, seeds=6, workers=1
    )
    for row in standings(table, "OFUL, no log"):
        print(f"{row.learner:14} regret {row.mean:5.0f}   95 %: {row.low:.0f} to {row.high:.0f}")
