"""A person who waits for the compiler is told so, once; one who does not wait is told nothing."""

from __future__ import annotations

import os
import subprocess
import sys

CODE = "import numpy as np; from sidelight.kernels.sums import Answers, add_answer; f = {call}; f(); f()"
CALL = (
    "lambda: add_answer(Answers(np.arange(2), np.zeros((1, 2, 2)), np.zeros((1, 1, 1)), np.zeros((1, 2)), np.zeros(1)),"
    " np.ones(2), 0, 1.0)"
)


def told(folder, code: str = CODE.format(call=CALL)) -> str:
    environment = {**os.environ, "NUMBA_CACHE_DIR": str(folder)}
    return subprocess.run(
        [sys.executable, "-c", code], env=environment, capture_output=True, text=True, check=True
    ).stderr


def test_the_first_compilation_says_so_and_the_next_process_does_not(tmp_path):
    assert told(tmp_path).count("sidelight warm") == 1
    assert told(tmp_path) == ""


def test_a_function_of_somebody_else_is_no_matter_of_sidelight(tmp_path):
    code = "import numba, sidelight.kernels.compiled; numba.njit(lambda x: x + 1)(1)"
    assert told(tmp_path, code=code) == ""
