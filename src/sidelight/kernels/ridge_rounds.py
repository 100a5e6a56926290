"""Many rounds in one call: the old policy's answer, a decision, its reward (see ``ridge``)."""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np

from sidelight.kernels.compiled import kernel
from sidelight.kernels.ridge import take_row
from sidelight.kernels.ridge_choice import choose_among
from sidelight.kernels.ridge_updates import take_in
from sidelight.kernels.state import state_of

__all__ = ["Rounds", "play"]


class Rounds(NamedTuple):
    """Rounds drawn in advance.

    Attributes:
        X: (n, d) contexts   rewards: (n, K) what each arm would pay.
        answers: (n,) positions of the old policy's arms, or (0,) where nobody asks.
        draws: (n,) in [0, 1), or (0,)   played: (n,) where the positions of the arms played go.
    """

    X: Any
    rewards: Any
    answers: Any
    draws: Any
    played: Any


@kernel
def play(arena, sizes, rounds, cursor):  # type: ignore[no-untyped-def]
    """Rounds ``t, t+1, …``: the old policy's answer (phase 0), then a decision and its reward (phase 1).

    No decision looks at the answers, so here they are counted alone; ``sums.add_answers`` takes them in afterwards.

    Comes back when ``room`` events or ``answer_room`` answers have come, when the arm just played is due for a refresh,
    or after ``calm`` events at a reward that surprises, so that the learner can do what is due; returns the round and
    phase to go on with, what has come, the arm that is due or −1, and whether it ended with a surprise.
    Where an arm may be tried in doubt of the log (``doubt · spent`` is the limit of ``to_doubt``), ``draws`` decide by
    a fair coin.

    rounds: ``Rounds``   cursor: ``(t, phase, room, answer_room, calm)``
    """
    s = state_of(arena, sizes)
    t, phase, room, answer_room, calm = cursor
    K, m, _ = s.loadings.shape
    y, z, estimates, highest, u = np.empty(s.order.shape[0]), np.empty(m), np.empty(K), np.empty(K), np.empty(m)
    n = rounds.X.shape[0]
    events = 0
    taken = 0
    while t < n:
        if phase == 0:
            phase = 1
            if rounds.answers.shape[0] > 0:
                events += 1
                taken += 1
                if events >= room or taken >= answer_room:
                    return t, 1, events, taken, -1, False
        take_row(rounds.X, t, s.order, y)
        a, _, _, doubted = choose_among(s, y, z, estimates, highest, s.doubt * s.spent[0])
        if doubted >= 0 and rounds.draws[t] < 0.5:
            a = doubted
        rounds.played[t] = a
        due, surprised = take_in(s, a, y, rounds.rewards[t, a], 1.0, z, u)
        events += 1
        t += 1
        phase = 0
        surprised = surprised and events >= calm
        if due or surprised or events >= room:
            return t, 0, events, taken, a if due else -1, surprised
    return t, 0, events, taken, -1, False
