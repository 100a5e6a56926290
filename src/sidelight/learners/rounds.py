"""Many simulated rounds inside compiled code, for learners whose class declares that compiled code decides for them.

``simulate`` draws contexts, rewards and answers in advance; ``play_rounds`` runs a learner through them and leaves it
as deciding and observing one by one would, to the last bit (``RunningOFUL``: up to rounding).
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from sidelight.kernels.ridge_rounds import Rounds, play
from sidelight.kernels.running import play_running
from sidelight.kernels.sums import add_answers
from sidelight.learners.reduced import ReducedLearner
from sidelight.learners.running import RunningOFUL
from sidelight.linalg import Array

__all__ = ["play_rounds"]

#: rounds inside the every-round variant's kernel before its coefficients are computed afresh from the sums
REFRESH_EVERY = 4096


def play_rounds(
    learner: Any, X: Array, rewards: Array, answers: NDArray[np.int64] | None, rng: np.random.Generator
) -> NDArray[np.int64] | None:
    """The arms that ``learner`` plays, after it has learned from them; None, and nothing changed, for other learners.

    Args:
        learner: any learner.
        X: (n, d) contexts.
        rewards: (n, K) what each of its arms would pay.
        answers: (n,) positions of the old policy's arms, where it needs them.
        rng: for draws, one per decision that makes one.

    Returns:
        (n,) positions among ``learner.arms``.
    """
    if not getattr(type(learner), "compiled_scores", False) or learner.needs == "probabilities":
        return None
    if learner.gaps is not None:
        return None  # contexts may have gaps, and teach how features go together
    if isinstance(learner, RunningOFUL):
        return None if answers is None else _running_rounds(learner, X, rewards, answers)
    if isinstance(learner, ReducedLearner):
        return _ridge_rounds(learner, X, rewards, answers, rng)
    return None


def _ridge_rounds(
    learner: ReducedLearner,
    X: Array,
    rewards: Array,
    answers: NDArray[np.int64] | None,
    rng: np.random.Generator,
) -> NDArray[np.int64] | None:
    sums = learner._answer_sums(answers is not None)
    if sums is None:
        return None
    n = len(X)
    named = np.zeros(0, dtype=np.int64) if answers is None else answers
    rounds = Rounds(X, rewards, named, learner._draws(n, rng), np.empty(n, dtype=np.int64))
    t = phase = 0
    while t < n:
        room, answer_room = learner._room()
        stop = learner._usual_until(X, rewards, t, min(n, t + room))
        if stop == t:
            _careful_round(learner, rounds, t, phase)
            t, phase = t + 1, 0
            continue
        arena, sizes, _ = learner._held
        part = rounds._replace(X=X[:stop], rewards=rewards[:stop])
        start, asked = t, t + phase
        t, phase, events, taken, due, surprised = play(
            arena, sizes, part, (t, phase, room, answer_room, learner._calm())
        )
        if taken:
            add_answers(sums, X[asked : asked + taken], named[asked : asked + taken], np.ones(taken))
        played = rounds.played[start:t]
        learner._took_rows(X[start:t], played, rewards[np.arange(start, t), played])
        if due >= 0:
            learner._refresh_arm(due)
        learner.n_contexts += events - taken
        learner._caught_up(events, taken, surprised)
    return np.asarray(rounds.played)


def _careful_round(learner: ReducedLearner, rounds: Rounds, t: int, phase: int) -> None:
    """The rest of one round by the methods that a user calls, for rows with a wild or new value."""
    x = rounds.X[t]
    if phase == 0 and len(rounds.answers):
        learner.observe_behavior(x, learner.arms[rounds.answers[t]])
    a, _, _, doubted = learner._choose_or_doubt(learner._held, x)
    if doubted >= 0 and rounds.draws[t] < 0.5:
        a = doubted
    rounds.played[t] = a
    learner._observe(x, a, float(rounds.rewards[t, a]))


def _running_rounds(
    learner: RunningOFUL, X: Array, rewards: Array, answers: NDArray[np.int64]
) -> NDArray[np.int64] | None:
    """For the paper's estimator; the others go round by round.

    The first rounds, in which ``B̂`` is so large that only an orthonormal basis keeps its digits, and any round whose
    matrix is too ill-conditioned, are decided by ``decide``.
    """
    hidden, summary = learner.hidden, learner.hidden.summary
    sums = hidden.sums
    if (
        sums is None
        or not (hidden.takes_actions_by_sums and hidden.estimates_by_weighting)
        or min(summary.n_recorded, summary.n_features - summary.n_recorded) == 0
        or sums.total_weight != sums.n_answers
    ):
        return None
    n = len(X)
    rounds = Rounds(X, rewards, answers, np.zeros(0), np.empty(n, dtype=np.int64))
    t = phase = 0
    while t < n:
        auto = learner.automatic
        room = REFRESH_EVERY if auto is None else min(REFRESH_EVERY, auto.room())
        stop = min(n, t + room)
        if auto is not None and auto.ranges is not None:
            stop = t + auto.ranges.first_unusual(X[t:stop], rewards[t:stop])
        unknown = auto is not None and not auto.units.known.all()
        careful = sums.n_answers < 4 * learner.n_arms or unknown or stop == t
        if not careful:
            state, part = learner._running(), rounds._replace(X=X[:stop], rewards=rewards[:stop])
            t, phase, events, taken = play_running(state, part, sums.arrays, (t, phase, room, sums.n_answers))
            learner._took(state, events, taken)
            careful = events < room and t < stop
        if careful:
            if phase == 0:
                learner.observe_behavior(X[t], learner.arms[answers[t]])
            a = learner.arms.index(learner.decide(X[t]).arm)
            rounds.played[t] = a
            learner.observe(X[t], learner.arms[a], float(rewards[t, a]))
            t, phase = t + 1, 0
    return np.asarray(rounds.played)
