"""What shards say of the rows that broke rules in a batch, put together for `learn.drift`.

Every shard names culprits of its own (see `detect.culprits`). A row that is in several shards is named by several, with
one hash, and is told apart there. Pairs whose two rows both moved from one shard to another are told as removed by the
one and as added by the other; such pairs are no news, so in a batch in which some of a rule have left a shard those
whose rows are both of the batch are not looked at. Linear in what is named: at most 256 rows a rule and shard.
"""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

from weever_stream.learn.drift import Struck
from weever_stream.stream.operator import ASIDE, DELTAS, TALLY

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence
    from typing import Any, Protocol

    class Told(Protocol):
        """A row of `operator.OUTPUT`."""

        kind: int
        shard: int
        rule: int
        sign: int
        moving: bool
        body: Any


__all__ = ["struck"]


def struck(told: Iterable[Told], names: Sequence[str]) -> dict[str, Struck]:
    """The culprits of a batch by rule, from the pieces and tallies of all shards. `names`: of rules, by number."""
    rows = list(told)
    left = {row.rule for row in rows if row.kind == DELTAS and row.moving and row.sign < 0}
    found: dict[str, Struck] = {}
    for row in rows:
        if row.kind != TALLY or row.shard == ASIDE:
            continue
        for one in json.loads(bytes(row.body))["struck"]:
            if one["moving"] and one["rule"] in left:
                continue
            before = found.get(names[one["rule"]], Struck(0))
            named = [(row_key, partner, either) for row_key, partner, either in one["named"]]
            found[names[one["rule"]]] = Struck(before.rows + one["rows"], [*before.named, *named])
    return found
