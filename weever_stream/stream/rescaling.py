"""Another number of shards for a checkpoint that has seen batches: `weever state rescale`.

Spark's own state stays as it is; what changes is which of our shards holds a row. Each family begins another generation
under the new number, and gets its rows, and the drops that are remembered, from the shards of the old one. They come
through the lane in one file, so in one batch, and in silence: the pairs are open already. What the old shards held is
dropped in the same batch. Changes that come in that batch find the rows in their new place. Reads every run once. That
batch is run before the command ends; if something ends it earlier, the next start does it.
"""

from __future__ import annotations

from collections import Counter
from dataclasses import replace
from itertools import chain
from typing import TYPE_CHECKING

from weever_stream.errors import StateError
from weever_stream.state.revision import refusals
from weever_stream.stream.position import last_batches
from weever_stream.stream.query import WHAT_IS_THERE
from weever_stream.stream.recut import moved, recut
from weever_stream.stream.revising import finish, settle, spark_version
from weever_stream.stream.routing import Router
from weever_stream.stream.saved import manifests, read_noted, write_noted

if TYPE_CHECKING:
    from collections.abc import Mapping

    from weever_stream.state.manifest import Manifest
    from weever_stream.state.noted import Noted
    from weever_stream.stream.query import Context

__all__ = ["rescale"]


def rescale(context: Context, shards: int) -> Noted:
    """Moves all rows to so many shards, and works off what is there. The job must not be running."""
    noted = read_noted(context.notes, context.checkpoint)
    if noted is None or last_batches(context.spark, context.checkpoint)[0] < 0:
        raise StateError(
            f"there is no state under {context.checkpoint}", hint="set `state.shards` in the job file, then run the job"
        )
    job = context.job
    named = (job.file.table, job.source.kind, job.file.key, noted.shards, spark_version(context.spark))
    for refusal in refusals(noted, *named):
        raise refusal
    if noted.shards == shards:
        return noted
    finish(context, noted, WHAT_IS_THERE)  # a batch that is not finished, and messages that are under way
    noted = settle(context, noted)
    if noted.rebuilding:
        names = ", ".join(sorted({noted.rules[old].name for old in noted.rebuilding}))
        raise StateError(f"{names} is still being rebuilt", hint="start the job until it is done, then rescale")
    found = manifests(context.spark, context.checkpoint)
    _refuse_uncounted(found)
    before = context.setup(noted)
    after = recut(noted, before, shards)
    setup = context.setup(after)
    after = replace(after, families=tuple(family.identity for family in setup.families))
    context.lease.check()
    context.lane.tidy(noted.revision)
    nothing = Router(setup).nothing().pack()
    everyone = ((shard, nothing) for shard in range(max(noted.shards, shards)))
    context.lane.send(chain(everyone, moved(before, setup, found)), after.revision)
    context.lease.check()
    write_noted(context.notes, after)
    finish(context, after, WHAT_IS_THERE)
    return after


def _refuse_uncounted(found: Mapping[int, Manifest]) -> None:
    """Which pairs of a flooded row are listed is decided where it is put: it cannot be moved without being told."""
    sums: Counter[tuple[str, int]] = Counter()  # of one shard alone the number means little
    for manifest in found.values():
        for identity, state in manifest.families.items():
            sums.update({(identity, rule): n for rule, n in enumerate(state.unlisted)})
    if any(sums.values()):
        raise StateError(
            "some rows have more violations than are listed (`max_pairs`), and such a state cannot be moved",
            hint="name an empty checkpoint with the new `state.shards` and start with --take-over",
        )
