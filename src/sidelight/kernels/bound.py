"""Single calls from Python: one array of addresses instead of twenty arrays.

Handing an array to compiled code costs a tenth of a microsecond, and a call takes twenty of them: more than the work.
So a learner notes once where its arrays lie (``table_of``), and keeps them alive beside the table.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
from numba import carray, njit, types  # type: ignore[attr-defined]
from numba.extending import intrinsic
from numpy.typing import NDArray

from sidelight.kernels.reduced import choose_among, room_to_choose, take, take_in

__all__ = ["choose_bound", "observe_bound", "table_of"]

#: the arrays of a learner, in the order of the table, after the sizes K, d, m, R, shifted and the length of ``packed``
_FLOATS = 17


def table_of(floats: Sequence[NDArray[np.floating]], integers: Sequence[NDArray[np.int64]], sizes: Any) -> Any:
    """(n,)  Sizes, then addresses.  The arrays must outlive the table.

    Args:
        floats: loadings, centre, spreads, weights, covariances, radii, bounds, packed (in single precision),
            reluctance, anchors, numbers, grams, moments, squares, context_sums, spent, log_dets.
        integers: order, counts, dimensions, updates.
        sizes: K, d, m, R, shifted.
    """
    assert len(floats) == _FLOATS
    for kind, arrays in ((np.float64, floats), (np.int64, integers)):
        for array in arrays:
            assert array.dtype == (np.float32 if array is floats[7] else kind)
            assert array.flags.c_contiguous
    numbers = [*(int(size) for size in sizes), len(floats[7]), *(array.ctypes.data for array in (*floats, *integers))]
    return np.array(numbers, dtype=np.int64)


def _pointer_to(kind: Any) -> Any:
    @intrinsic
    def pointer(typing_context: Any, address: Any) -> Any:
        """An address as a pointer."""
        signature: Any = types.CPointer(kind)(types.int64)  # type: ignore[no-untyped-call]

        def generate(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
            return builder.inttoptr(arguments[0], context.get_value_type(signature.return_type))

        return signature, generate

    return pointer


_float_at, _single_at, _integer_at = (_pointer_to(kind) for kind in (types.float64, types.float32, types.int64))


@njit(cache=True)
def choose_bound(x, table, limit):  # type: ignore[no-untyped-def]
    """``choose_among`` for the learner whose arrays ``table`` tells."""
    K, d, m, R = table[0], table[1], table[2], table[3]
    weights = carray(_float_at(table[9]), (K, d))
    covariances = carray(_float_at(table[10]), (K, m, m))
    packed = carray(_single_at(table[13]), table[5])
    y, z, estimates, highest, x_rough, rough = room_to_choose(weights, covariances, packed)
    take(x, carray(_integer_at(table[23]), d), y)
    return choose_among(
        carray(_float_at(table[6]), (K, m, R)),
        table[4] != 0,
        carray(_float_at(table[7]), (1, m, R)),
        carray(_float_at(table[8]), K),
        weights,
        covariances,
        carray(_float_at(table[11]), K),
        carray(_float_at(table[12]), K),
        packed,
        carray(_integer_at(table[24]), K),
        carray(_float_at(table[14]), K),
        limit,
        y,
        z,
        estimates,
        highest,
        x_rough,
        rough,
    )


@njit(cache=True)
def observe_bound(a, x, r, table):  # type: ignore[no-untyped-def]
    """``take_in`` for the learner whose arrays ``table`` tells."""
    K, d, m, R = table[0], table[1], table[2], table[3]
    y, z, u = np.empty(d), np.empty(m), np.empty(m)
    take(x, carray(_integer_at(table[23]), d), y)
    return take_in(
        a,
        y,
        r,
        carray(_float_at(table[6]), (K, m, R)),
        table[4] != 0,
        carray(_float_at(table[15]), (K, d)),
        carray(_integer_at(table[25]), K),
        carray(_float_at(table[16]), 7 + K),
        carray(_float_at(table[17]), (K, m, m)),
        carray(_float_at(table[18]), (K, m)),
        carray(_float_at(table[19]), K),
        carray(_float_at(table[20]), 2 * d + 2),
        carray(_float_at(table[21]), 1),
        carray(_integer_at(table[24]), K),
        carray(_integer_at(table[26]), K),
        carray(_float_at(table[10]), (K, m, m)),
        carray(_float_at(table[9]), (K, d)),
        carray(_float_at(table[22]), K),
        carray(_float_at(table[11]), K),
        carray(_float_at(table[12]), K),
        carray(_single_at(table[13]), table[5]),
        z,
        u,
        False,
    )
