"""What every part of a running stream must agree on: rules, key, columns, shards, and where runs are stored.

Plain values that travel from the driver to the workers; what is derived from them (plans, encoders) is made on arrival.
Rules that come into a running job do not join the families that are there: they form families of their own, another
generation, which is filled from the table. Rules that leave stay listed as ended, so that shards can close what is open
under them; a family is over when all of its rules are.
"""

from __future__ import annotations

from dataclasses import dataclass, field, replace
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
    """Those of all generations, one after the other, the ended ones too: a rule keeps its number."""
    key: tuple[tuple[str, ColumnType], ...]
    columns: pa.Schema
    """The key's columns, then the others that rules read, in the types in which they are stored."""
    shards: int
    store: StoreOptions
    spread: Mapping[str, int] = field(default_factory=dict)
    inline_bytes: int = 256 << 10
    retain_batches: int = 10
    remember_drops: int = 0
    max_pairs: int = 10_000
    """A row with more partners under a rule lists only some of its pairs; 0: no row has too many. It may change."""
    generations: Mapping[int, int] = field(default_factory=dict)
    """The number of each generation, with how many rules it has; nothing: all rules are of generation 0."""
    ended: Mapping[int, str] = field(default_factory=dict)
    """The numbers of rules that are no longer kept, with the reason why their violations are over."""
    fills: Mapping[int, tuple[int, ...]] = field(default_factory=dict)
    """How many messages fill a generation, by shard."""
    offsets: StoreOptions | None = None
    """Spark's log of offsets, of a source that may cut a batch inside a commit; None: it does not, or it is no matter.
    """
    replaces: Mapping[int, int] = field(default_factory=dict)
    """Rules that are built again, each alone in its generation: the new number, and the number whose place it takes."""

    @cached_property
    def families(self) -> tuple[FamilyPlan, ...]:
        """The families of all generations, with their plans. A family keeps its number."""
        made: list[FamilyPlan] = []
        start = 0
        for generation, n in (self.generations or {0: len(self.rules)}).items():
            rules = self.rules[start : start + n]
            spread = {**{bound.rule.name: bound.rule.spread for bound in rules}, **self.spread}
            for family in families(rules, dict(self.key), self.shards, spread):
                members = tuple(start + rule for rule in family.rules)
                home = next((_home(one) for one in made if self.replaces.get(members[0]) in one.rules), None)
                made.append(replace(family, number=len(made), rules=members, generation=generation, home=home))
            start += n
        return tuple(made)

    @cached_property
    def rebuilding(self) -> dict[int, int]:
        """Rules that have not taken the place of others yet, or not in every shard, and those."""
        return {new: old for new, old in self.replaces.items() if old not in self.ended and new not in self.ended}

    def family_of(self, rule: int) -> FamilyPlan:
        """The family that a rule is in."""
        return next(family for family in self.families if rule in family.rules)

    @cached_property
    def living(self) -> tuple[FamilyPlan, ...]:
        """The families that are kept: those with a rule that has not ended."""
        return tuple(family for family in self.families if not self.ended.keys() >= set(family.rules))

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
        parts = [*(family.identity for family in self.families), str(self.columns), str(self.shards)]
        changing = [str(sorted(self.ended)), str(sorted(self.fills.items()))] if self.ended or self.fills else []
        changing += [str(sorted(self.replaces.items()))] if self.replaces else []
        return sha256("\n".join([*parts, *changing]).encode("utf-8", "surrogatepass")).hexdigest()[:16]

    def same_as(self, other: Setup) -> bool:
        """Whether nothing differs, be it only an option. Rules are equal whatever their spread; `identity` has that."""
        return self is other or (self == other and self.identity == other.identity)

    def awaited(self, family: FamilyPlan, shard: int) -> int:
        """How many messages fill a family in a shard."""
        counts = self.fills.get(family.generation, ())
        return counts[shard] if shard < len(counts) else 0

    def __getstate__(self) -> dict[str, object]:
        """Without what is derived."""
        return {
            name: value
            for name, value in vars(self).items()
            if name not in ("families", "living", "rebuilding", "identity")
        }


def _home(family: FamilyPlan) -> int:
    return family.number if family.home is None else family.home
