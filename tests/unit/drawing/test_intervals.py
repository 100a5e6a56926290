"""Numbers as pages show them."""

from __future__ import annotations

import pytest

from sidelight.drawing.intervals import number, rounded


@pytest.mark.parametrize(
    ("value", "places", "sign", "told"),
    [
        (-0.3, 0, False, "0"),
        (0.3, 0, True, "0"),
        (-0.0, 0, True, "0"),
        (-0.004, 2, True, "0.00"),
        (-0.6, 0, False, "−1"),
        (-0.06, 1, True, "−0.1"),
        (1234.5, 1, True, "+1,234.5"),
        (-1234.5, 1, False, "−1,234.5"),
        (7.0, 0, False, "7"),
    ],
)
def test_what_rounds_to_zero_has_no_sign(value: float, places: int, sign: bool, told: str) -> None:
    assert rounded(value, places, sign) == told


def test_three_significant_digits() -> None:
    assert number(-0.0) == number(0.0, sign=True) == "0"
    assert number(0.000123) == "0.000123"
    assert number(-1e-9) == "−1.00e-09"
    assert number(4.56e-5, sign=True) == "+4.56e-05"
    assert number(-2.2e-16) == number(2.2e-16, sign=True) == "0"
    assert number(-0.3) == "−0.300"
    assert number(0.0123, sign=True) == "+0.0123"
    assert number(-12345.6) == "−12,346"
    assert number(float("nan")) == "–"
