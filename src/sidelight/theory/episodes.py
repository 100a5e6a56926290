"""The episodes of Algorithm 2.

Symbols are those of the package's docstring.
"""

from __future__ import annotations

from sidelight.errors import InputError

__all__ = ["episode_count", "episode_lengths"]


def episode_count(horizon: int) -> int:
    """``⌈log₂ T⌉``, at least 1: one initial round, then episodes of ``1, 2, 4, …`` rounds, the last cut at
    ``T``.

    The print starts at ``n = 0`` or ``n = 1`` and covers ``T − 1`` or ``T − 2`` rounds of a power of two.
    """
    if horizon < 1:
        raise InputError(f"horizon={horizon}: there must be at least one round.")
    return max(1, int(horizon - 1).bit_length())


def episode_lengths(horizon: int) -> list[int]:
    """Rounds of each episode after the initial round; they sum to ``T − 1``.

    Differs from the print, whose episodes ``n = 0, …, log T − 1`` of ``2ⁿ`` rounds sum to ``T − 1`` only if ``T`` is a
    power of two and leave out the round whose answer the first episode needs (the appendix's listing starts at ``n =
    1`` and leaves out more): here that initial round comes first, the logarithm has base 2, and the last episode is
    cut at ``T``, whatever ``T`` is.

    Examples:
        >>> episode_lengths(16), episode_lengths(20)
        ([1, 2, 4, 8], [1, 2, 4, 8, 4])
    """
    return [min(2**n, horizon - 2**n) for n in range(episode_count(horizon)) if horizon > 2**n]
