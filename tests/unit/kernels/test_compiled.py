"""How kernels and helpers are compiled."""

import os
import subprocess
import sys

#: chooses numba's release before Sidelight looks at it, and prints what a kernel with helpers computes
PROGRAM = """
import sys
import numba
numba.__version__ = sys.argv[1]
import numpy as np
from sidelight.kernels import compiled
from sidelight.kernels.sums import Answers, add_answer
assert hasattr(compiled.helper(lambda x: x), "_compiled") == (sys.argv[1] == "0.68.1")
rng = np.random.default_rng(3)
x, S = rng.normal(size=7), rng.normal(size=(2, 7, 7))
expected = S[1] + 0.3 * np.outer(x, x)
add_answer(Answers(np.arange(7), S, np.zeros((2, 4, 4)), np.zeros((2, 7)), np.zeros(2)), x, 1, 0.3)
np.testing.assert_allclose(S[1], expected, rtol=1e-12)
print(S.tobytes().hex())
"""


def test_helpers_give_the_same_bits_under_a_release_of_numba_that_was_not_tested(tmp_path) -> None:
    environment = {**os.environ, "NUMBA_CACHE_DIR": str(tmp_path)}
    printed = [
        subprocess.run(
            [sys.executable, "-c", PROGRAM, version],
            env={**environment, "NUMBA_CACHE_DIR": str(tmp_path / version)},
            capture_output=True,
            text=True,
            timeout=280,
            check=True,
        ).stdout
        for version in ("0.68.1", "9.99.0")
    ]
    assert printed[0] == printed[1]
    assert printed[0].strip()
