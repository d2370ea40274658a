"""What shards say of the rows that broke rules in a batch, put together for `learn.drift`.

Every shard names culprits of its own (see `detect.culprits`). A row that is in several shards is named by several, with
one hash, and is told apart there. Pairs whose two rows both moved from one shard to another are told as removed by the
one and as added by the other; such pairs are no news, so in a batch in which some of a rule have left a shard those
whose rows are both of the batch are not looked at. Linear in what is named: at most 256 rows a rule and shard.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from weever_stream.learn.drift import Struck

if TYPE_CHECKING:
    from collections.abc import Collection, Mapping, Sequence
    from typing import Any

__all__ = ["struck"]


def struck(tallies: Collection[Mapping[str, Any]], names: Sequence[str]) -> dict[str, Struck]:
    """The culprits of a batch by rule, from the tallies of all shards. `names`: of rules, by number."""
    left = {rule for tally in tallies for rule, sign, moving, _ in tally["pairs"] if moving and sign < 0}
    found: dict[str, Struck] = {}
    for tally in tallies:
        for one in tally["struck"]:
            if one["moving"] and one["rule"] in left:
                continue
            before = found.get(names[one["rule"]], Struck(0))
            named = [(row_key, partner, either) for row_key, partner, either in one["named"]]
            found[names[one["rule"]]] = Struck(before.rows + one["rows"], [*before.named, *named])
    return found
