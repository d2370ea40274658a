"""Names for the numpy arrays that flow through the index."""

from __future__ import annotations

from typing import Any, TypeAlias

import numpy as np
from numpy.typing import NDArray

__all__ = ["Bits", "Bytes", "Ints", "Mask", "Rows"]

Ints: TypeAlias = NDArray[np.int64]
"""Codes, keys, bounds: anything the kernels compare."""
Rows: TypeAlias = NDArray[np.int32]
"""Positions of rows in a run or a batch."""
Mask: TypeAlias = NDArray[np.bool_]
Bytes: TypeAlias = NDArray[np.uint8]
Bits: TypeAlias = NDArray[Any]
