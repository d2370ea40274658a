"""Learning: the rules that a table obeys, kept true while it changes, without Spark.

from weever_stream.learn import Learner

learner = Learner(rows, key="id")
learned = learner.apply(changes)
"""

from __future__ import annotations

from weever_stream.learn.learned import Learned, RuleChange
from weever_stream.learn.learner import Learner

__all__ = ["Learned", "Learner", "RuleChange"]
