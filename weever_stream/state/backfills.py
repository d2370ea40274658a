"""Which rules of a checkpoint are being backfilled, and how far that is.

From the note of what the checkpoint was made for and from what its shards last reported. Pure. A rule is backfilled
when it is new, when it denies something else, or when it is built again. Until that is done its violations are not all
known, or, of one that is built again, they are those of its old state: nobody may take fewer of them for fixed.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Protocol

from weever_stream.state.revision import CHANGED, REBUILT

if TYPE_CHECKING:
    from collections.abc import Collection, Mapping

    from weever_stream.state.noted import Generation, Noted

__all__ = ["Reported", "pending_backfills"]


class Reported(Protocol):
    """What a shard reports of its backfills."""

    @property
    def filled(self) -> Mapping[int, int]:
        """By generation, the messages that have come."""
        ...

    @property
    def shown(self) -> Collection[int]:
        """The generations whose rules report violations here."""
        ...


def pending_backfills(noted: Noted, shards: Mapping[int, Reported]) -> dict[str, float]:
    """The rules that are being backfilled, each with the share that is done, from 0 to 1."""
    living = noted.living
    last = {rule.name: rule.ended for rule in noted.rules}  # a rule may have been changed, and removed after that
    closed = [name for name, ended in last.items() if ended in (CHANGED, REBUILT) and name not in living]
    pending = dict.fromkeys(closed, 0.0)
    rebuilt, number = set(noted.rebuilding.values()), 0
    for generation in noted.generations:
        numbers = range(number, number + len(generation.rules))
        number += len(generation.rules)
        names = [rule.name for rule in generation.rules if rule.ended is None]
        if names and not _is_done(generation, noted.shards, shards, rebuilt=bool(rebuilt & {*numbers})):
            pending |= dict.fromkeys(names, _share(generation, shards))
    return pending


def _is_done(generation: Generation, n: int, shards: Mapping[int, Reported], *, rebuilt: bool) -> bool:
    if rebuilt:  # it takes the place of another in every shard, also in those that no row comes to
        return all(shard in shards and generation.number in shards[shard].shown for shard in range(n))
    return all(_filled(generation, shard, shards) >= awaited for shard, awaited in enumerate(generation.fills))


def _filled(generation: Generation, shard: int, shards: Mapping[int, Reported]) -> int:
    return shards[shard].filled.get(generation.number, 0) if shard in shards else 0


def _share(generation: Generation, shards: Mapping[int, Reported]) -> float:
    total = sum(generation.fills)
    return sum(_filled(generation, shard, shards) for shard in range(len(generation.fills))) / total if total else 0.0
