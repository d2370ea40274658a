"""What changes when a job file meets a checkpoint that was made with another one.

Rules are compared by name and fingerprint, which does not depend on spelling. Severity, owner and description
may change freely. Key, kind of source, number of shards and Spark's minor version may not: a checkpoint that was made
for others is refused, with the old value and the way out.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from weever_stream.errors import StateError

if TYPE_CHECKING:
    from collections.abc import Collection, Iterator, Mapping, Sequence

    from weever_stream.rules.model import Rule
    from weever_stream.state.noted import Noted

__all__ = ["CHANGED", "REBUILT", "REMOVED", "Revision", "refusals", "revise"]

REMOVED, CHANGED, REBUILT = "rule_removed", "rule_changed", "rule_rebuilt"
"""Why violations are over although no row has changed."""


@dataclass(frozen=True)
class Revision:
    """What a job file changes of the rules."""

    kept: tuple[str, ...] = ()
    added: tuple[str, ...] = ()
    changed: Mapping[str, str] = field(default_factory=dict)
    """By name, what of the rule is another."""
    removed: tuple[str, ...] = ()
    rebuilt: tuple[str, ...] = ()

    def __bool__(self) -> bool:
        return bool(self.added or self.changed or self.removed or self.rebuilt)

    @property
    def reasons(self) -> dict[str, str]:
        """The rules that end, with the reason that their violations get."""
        return {**dict.fromkeys(self.removed, REMOVED), **dict.fromkeys(self.changed, CHANGED)}

    @property
    def filled(self) -> tuple[str, ...]:
        """The rules that are filled from the table."""
        return (*self.added, *self.changed, *self.rebuilt)

    def lines(self) -> Iterator[str]:
        """In words, a line for each rule that changes."""
        for name, what in self.changed.items():
            yield f"{name} {what}"
        for name in self.removed:
            yield f"{name} is gone"
        for name in self.added:
            yield f"{name} is new"
        for name in self.rebuilt:
            yield f"{name} is to be built again"


def revise(noted: Noted, rules: Sequence[Rule], again: Collection[str] = ()) -> Revision:
    """What a job file changes of the rules that a checkpoint was made with. `again`: rules to build again."""
    before, now = noted.living, {rule.name: rule for rule in rules}
    changed: dict[str, str] = {}
    for name in before.keys() & now.keys():
        if before[name].fingerprint != now[name].fingerprint:
            changed[name] = "denies something else"
        elif before[name].spread != now[name].spread:
            changed[name] = f"has spread {now[name].spread}, and had {before[name].spread}"
    same = [rule.name for rule in rules if rule.name in before and rule.name not in changed]
    return Revision(
        kept=tuple(name for name in same if name not in again),
        added=tuple(rule.name for rule in rules if rule.name not in before),
        changed={rule.name: changed[rule.name] for rule in rules if rule.name in changed},
        removed=tuple(sorted(before.keys() - now.keys())),
        rebuilt=tuple(name for name in same if name in again),
    )


def refusals(
    noted: Noted, table: str, source: str, key: Sequence[str], shards: int, spark: str | None
) -> Iterator[StateError]:
    """Why a checkpoint cannot serve a job at all. `spark`: the version that would run it, if that is known."""
    anew = "go back to it, or name an empty checkpoint and start with --take-over, which finds everything again"
    if noted.source != source and noted.table != table:
        yield StateError(
            f"the checkpoint belongs to another job: it was made for the table {noted.table} with a {noted.source}"
            f" source, this job is for {table} with a {source} source",
            hint="give this job a `state.checkpoint` of its own",
        )
        return
    if noted.source != source:
        yield StateError(f"the checkpoint was made for a {noted.source} source, now it is {source}", hint=anew)
    if noted.key != tuple(key):
        yield StateError(f"the checkpoint was made for the key {', '.join(noted.key)}, now {', '.join(key)}", hint=anew)
    if noted.shards != shards:
        yield StateError(
            f"the checkpoint has {noted.shards} shards, the job file asks for {shards}",
            hint=f"`weever state rescale` moves it to {shards} shards; or set `state.shards: {noted.shards}`",
        )
    if spark is not None and noted.spark != spark:
        yield StateError(
            f"the checkpoint was made with Spark {noted.spark}, this is Spark {spark}",
            hint=f"install pyspark=={noted.spark}.*, or name an empty checkpoint and start with --take-over, "
            "which finds everything again",
        )
