"""Names for the numpy arrays that flow through the index, and views of Arrow's buffers as such.

Arrow's own `to_numpy` and `array` import pandas where that is installed, which takes longer than a small check does.
"""

from __future__ import annotations

from typing import Any, TypeAlias

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

__all__ = ["Bytes", "Ints", "Mask", "Rows", "as_arrow", "booleans", "numbers", "present"]

Ints: TypeAlias = NDArray[np.int64]
"""Codes, keys, bounds: anything the kernels compare."""
Rows: TypeAlias = NDArray[np.int32]
"""Positions of rows in a run or a batch."""
Mask: TypeAlias = NDArray[np.bool_]
Bytes: TypeAlias = NDArray[np.uint8]


def numbers(array: pa.Array, kind: str) -> NDArray[Any]:
    """A view of a fixed-width array as numpy numbers of the given kind ("i", "u" or "f"); nulls are any value."""
    dtype = _DTYPES[kind, array.type.bit_width]
    body = array.buffers()[1]
    if body is None:
        return np.empty(0, dtype)
    return np.frombuffer(body, dtype, len(array), array.offset * dtype.itemsize)


_DTYPES = {(kind, bits): np.dtype(f"{kind}{bits // 8}") for kind in "iu" for bits in (8, 16, 32, 64)} | {
    ("f", bits): np.dtype(f"f{bits // 8}") for bits in (16, 32, 64)
}


def booleans(array: pa.Array) -> Mask:
    """A Boolean array as a mask; nulls are false."""
    body = _bits(array.buffers()[1], array)
    return body if not array.null_count else body & present(array)


def present(array: pa.Array) -> Mask:
    """Which values are not null."""
    validity = array.buffers()[0]
    return np.ones(len(array), np.bool_) if validity is None else _bits(validity, array)


def _bits(packed: pa.Buffer | None, array: pa.Array) -> Mask:
    if packed is None:
        return np.zeros(len(array), np.bool_)
    first, last = array.offset // 8, (array.offset + len(array) + 7) // 8
    bits = np.unpackbits(np.frombuffer(packed, np.uint8, last - first, first), bitorder="little")
    return bits[array.offset - 8 * first :][: len(array)].view(np.bool_)


def as_arrow(numbers: Ints | Rows) -> pa.Array:
    """Whole numbers as an Arrow array, without a copy."""
    kind = pa.int32() if numbers.dtype == np.int32 else pa.int64()
    return pa.Array.from_buffers(kind, len(numbers), [None, pa.py_buffer(np.ascontiguousarray(numbers))])
