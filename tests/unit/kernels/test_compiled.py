"""How kernels and helpers are compiled."""

import os
import pickle
import subprocess
import sys

import pytest

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


#: computes with a kernel, and prints the result and how many kernels had to be compiled for it
AGAIN = """
import numpy as np
from sidelight.kernels.sums import Answers, add_answer
S = np.zeros((2, 3, 3))
add_answer(Answers(np.arange(3), S, np.zeros((2, 2, 2)), np.zeros((2, 3)), np.zeros(2)), np.ones(3), 1, 0.25)
print(S[1, 0, 0], sum(add_answer.stats.cache_misses.values()))
"""


class Renamed:
    """Stands for a type that this version of the package does not have."""


@pytest.mark.parametrize(("kind", "left"), [("nbi", "a type that is gone"), ("nbc", "nothing")])
def test_files_that_cannot_be_read_are_compiled_anew(tmp_path, kind, left) -> None:
    """What another version left, or a power cut, is no error: not of the index, nor of the code."""

    def printed() -> str:
        environment = {**os.environ, "NUMBA_CACHE_DIR": str(tmp_path)}
        command = [sys.executable, "-c", AGAIN]
        done = subprocess.run(command, env=environment, capture_output=True, text=True, timeout=280, check=False)
        assert done.returncode == 0, done.stderr
        return done.stdout.strip()

    assert printed() == "0.25 1"
    assert printed() == "0.25 0"
    (path,) = tmp_path.rglob(f"*add_answer*.{kind}")
    whole = path.read_bytes()
    content = pickle.dumps(Renamed()).replace(b"Renamed", b"Missing") if left != "nothing" else b""
    # an index begins with numba's version, by itself
    version = whole[: len(pickle.dumps(pickle.loads(whole), protocol=-1))] if kind == "nbi" and content else b""
    path.write_bytes(version + content)
    assert printed() == "0.25 1"
    assert printed() == "0.25 0"
