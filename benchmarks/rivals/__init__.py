"""Other ways to start a linear contextual bandit from a biased or incomplete log, written from their papers.

They live here and not in ``src/``: they are what Sidelight is compared with, not part of it. Every file names its paper
and what was chosen where the paper leaves a choice open. ``python -m benchmarks.rivals`` runs them.
"""
