"""Compiled inner loops.  Whoever imports any of them is told when a compiler makes them wait."""

from sidelight.kernels import notice as notice
