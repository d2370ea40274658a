"""The whole stream in one process under one seed: feed, routing, shards, run files, sinks, and all that can go wrong.

    python -m tests.simulation --runs 2000 --seed 1

A seed draws a world: rules, a table and how its feed speaks, the setup, and the weather, which is how often each
fault strikes. Routing, shards, manifests, run files, netting and the published progress are the product's own. Spark is
played by `query` and `cluster`, which keep its promises and no more: offsets are logged before a batch; a task may fail,
run twice, or go on after it is over; a query begins again behind the last commit, with messages in another order.

After every commit: the sum of the log, the keyed topic, the counts of the shards and the published ones are what nested
loops find in the table at the published position; and every file that a state within the retained batches needs is
there. Nothing is random but the seed, so a seed that fails fails again.
"""
