"""Finding rules: the denial constraints that a table obeys, without Spark.

from weever_stream.discover import discover

found = discover("packages.parquet")
print(found.yaml())

The package itself can be called as the function of its name: `weever_stream.discover("packages.parquet")`.
"""

from __future__ import annotations

import sys
from types import ModuleType
from typing import Any

from weever_stream.discover.result import Discovery, Found
from weever_stream.discover.run import discover

__all__ = ["Discovery", "Found", "discover"]


class _Callable(ModuleType):
    """Python binds a package's name in its parent to the package, over any function of that name."""

    def __call__(self, data: Any, **options: Any) -> Discovery:
        return discover(data, **options)


sys.modules[__name__].__class__ = _Callable
