"""Other ways to start a linear contextual bandit from a biased or incomplete log, written after their papers.

They live here and not in ``src/``: they are what Sidelight is compared with, not part of it. Every file names its paper
and what was chosen. Of the papers since 2021 the abstracts and summaries were at hand, not the full texts: details that
are not in those are choices made here, and may differ from the authors' own code. Of ARRoW-CB and of the Doubly
Debiased Lasso the authors' code was read. ``python -m benchmarks.rivals`` runs them.
"""
