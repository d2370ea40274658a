"""Learning: the rules that a table obeys, kept true while it changes, without Spark.

    from weever_stream.learn import Learner

    learner = Learner(rows, key="id")
    learned = learner.apply(changes)

Names are loaded when they are first used: what a job needs of this package does not load the compiled engine.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from weever_stream.learn.errors import ErrorWatch
    from weever_stream.learn.learned import Learned, RuleChange
    from weever_stream.learn.learner import Learner

__all__ = ["ErrorWatch", "Learned", "Learner", "RuleChange"]

_HOMES = {"errors": ("ErrorWatch",), "learned": ("Learned", "RuleChange"), "learner": ("Learner",)}


def __getattr__(name: str) -> Any:
    for home, names in _HOMES.items():
        if name in names:
            return getattr(import_module(f"weever_stream.learn.{home}"), name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
