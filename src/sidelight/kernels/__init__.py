"""Compiled inner loops; importing any of them installs the notice that is printed when one is being compiled."""

from sidelight.kernels import notice as notice
