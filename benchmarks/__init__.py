"""Measurements: ``python -m benchmarks`` for timings, ``python -m benchmarks.evidence`` for the claims of the docs."""
