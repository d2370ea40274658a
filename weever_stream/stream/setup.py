"""What every part of a running stream must agree on: rules, key, columns, shards, and where runs are stored.

Plain values that travel from the driver to the workers; what is derived from them (plans, encoders) is made on arrival.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from functools import cached_property
from hashlib import sha256
from typing import TYPE_CHECKING

import pyarrow as pa

from weever_stream.detect.families import LEFT, RIGHT, families
from weever_stream.rules.types import ColumnType

if TYPE_CHECKING:
    from collections.abc import Mapping

    from weever_stream.detect.families import FamilyPlan
    from weever_stream.rules.bind import BoundRule
    from weever_stream.state.store import StoreOptions

__all__ = ["Setup"]

_ROLES = pa.schema([(LEFT, pa.bool_()), (RIGHT, pa.bool_())])


@dataclass(frozen=True)
class Setup:
    """The agreement."""

    rules: tuple[BoundRule, ...]
    key: tuple[tuple[str, ColumnType], ...]
    columns: pa.Schema
    """The key's columns, then the others that rules read, in the types in which they are stored."""
    shards: int
    store: StoreOptions
    spread: Mapping[str, int] = field(default_factory=dict)
    inline_bytes: int = 256 << 10
    retain_batches: int = 100
    remember_drops: int = 0

    @cached_property
    def families(self) -> tuple[FamilyPlan, ...]:
        """The rules' families, with their plans."""
        return families(self.rules, dict(self.key), self.shards, self.spread)

    @property
    def key_names(self) -> tuple[str, ...]:
        """The columns of the key."""
        return tuple(name for name, _ in self.key)

    @property
    def kept_schema(self) -> pa.Schema:
        """The columns with the roles, as shards keep them."""
        return pa.schema([*self.columns, *_ROLES])

    @cached_property
    def identity(self) -> str:
        """Equal for setups that store the same things in the same way."""
        text = "\n".join([*(family.identity for family in self.families), str(self.columns), str(self.shards)])
        return sha256(text.encode("utf-8", "surrogatepass")).hexdigest()[:16]

    def __getstate__(self) -> dict[str, object]:
        """Without what is derived."""
        return {name: value for name, value in vars(self).items() if name not in ("families", "identity")}
