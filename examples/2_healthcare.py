"""Real data: 442 diabetes patients (the set that ships with scikit-learn), and records that kept no blood values.

Three plans of care, for slow, medium and fast progression of the disease; the right one is known for every patient from
how the disease went on. An old policy chose by the six blood values, which the records then lost: they kept age, sex,
body mass and blood pressure. Online all ten are measured. The log is tiny (221 patients), so do not expect wonders.
"""

from sklearn.datasets import load_diabetes

import sidelight as sl
from sidelight.drawing.regret import standings
from sidelight.worlds.replay import ReplayWorld

patients = load_diabetes(as_frame=True, scaled=False).frame
records, blood = ["age", "sex", "bmi", "bp"], ["s1", "s2", "s3", "s4", "s5", "s6"]
schema = sl.Schema([*records, *blood], recorded=records, intercept=True)


def hospital(seed: int) -> ReplayWorld:
    """The table as a world: half of the patients write the log, the other half come online."""
    return ReplayWorld.from_answers(patients, schema, "target", cuts=(100, 180), seed=seed)


def cold(run: sl.Run) -> sl.Learner:
    return sl.OFUL(3, run.world.n_features, arms=run.world.arms, noise=0.4, radius="posterior")


def zeros(run: sl.Run) -> sl.Learner:
    return sl.ZeroFilledOFUL(run.summary, noise=0.4, radius="posterior")


def fused(run: sl.Run) -> sl.Learner:
    return sl.FusedOFUL(sl.BehaviorQueries(run.summary))


if __name__ == "__main__":
    table = sl.simulate(
        hospital,
        {"OFUL, no log": cold, "zeros for the blood": zeros, "FusedOFUL": fused},
        horizon=1_000,
        recorded=records,
        log_rows=200,
        seeds=8,
        workers=1,
    )
    print("wrong plans among 1,000 patients, beyond the best choice for each (mean over 8 splits of the table)")
    for row in standings(table, "OFUL, no log"):
        print(f"{row.learner:20} {row.mean:5.0f}   95 %: {row.low:.0f} to {row.high:.0f}")
