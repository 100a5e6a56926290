"""``part``: a view of a stretch of a vector, made without numba's slices.

A slice of numba's checks its bounds, and a reshape its strides; both count references to the memory.  A state is
twenty such views, so that compiling them took longer than compiling what a kernel does with them.  Here a view is an
address and a shape.  It counts no reference: the vector must outlive it, as an argument of a kernel does.
"""

from __future__ import annotations

import math
from typing import Any

from numba import types
from numba.core import cgutils
from numba.core.typing.templates import make_intrinsic_template
from numba.extending import intrinsic
from numba.np.arrayobj import populate_array

__all__ = ["part"]


def part(vector: Any, begin: Any, shape: Any) -> Any:
    """``vector[begin:end].reshape(shape)``, ``end`` as the shape asks for.  shape: a tuple of one to three lengths"""
    return vector[begin : begin + math.prod(shape)].reshape(shape)


@intrinsic
def _compiled_part(typing_context: Any, vector: Any, begin: Any, shape: Any) -> Any:
    """Give numba the machine code of ``part``, a view of a stretch of an array."""
    view = types.Array(vector.dtype, len(shape), "C")

    def code(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        source = context.make_array(signature.args[0])(context, builder, arguments[0])
        size = context.get_abi_sizeof(context.get_data_type(view.dtype))
        lengths = cgutils.unpack_tuple(builder, arguments[2])  # type: ignore[no-untyped-call]
        strides = [context.get_constant(types.intp, size)]
        for length in lengths[:0:-1]:
            strides.insert(0, builder.mul(strides[0], length))
        array = context.make_array(view)(context, builder)
        data = builder.gep(source.data, [arguments[1]])
        populate_array(array, data=data, shape=lengths, strides=strides, itemsize=size, meminfo=None)  # type: ignore[no-untyped-call]
        return array._getvalue()

    lengths: Any = types.UniTuple(types.intp, len(shape))  # type: ignore[no-untyped-call]
    return view(vector, types.intp, lengths), code


# compiled code that names the plain function gets the other one
_template: Any = make_intrinsic_template(_compiled_part, _compiled_part._defn, "part")  # type: ignore[no-untyped-call]
part._numba_type_ = types.Function(_template)  # type: ignore[attr-defined]
