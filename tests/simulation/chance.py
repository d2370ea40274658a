"""All chance of a world, from its one seed: what strikes, how often it has, and the trace of what happened."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Mapping
from random import Random

__all__ = ["Chance"]


class Chance:
    """Decides. Everything random in a world asks `random`, and every fault asks `strikes`."""

    def __init__(self, random: Random, tell: Callable[[str], None] | None = None) -> None:
        self.random = random
        self.struck: Counter[str] = Counter()
        self._weather: Mapping[str, float] = {}
        self._left = 0
        self._tell = tell

    def begin(self, weather: Mapping[str, float], faults: int) -> None:
        """From now on faults strike, so many of them at most."""
        self._weather, self._left = weather, faults

    def calm(self) -> None:
        """From now on nothing strikes."""
        self._weather = {}

    def strikes(self, fault: str) -> bool:
        """Whether a fault strikes here and now."""
        rate = self._weather.get(fault, 0.0)
        if not rate or not self._left or self.random.random() >= rate:
            return False
        self._left -= 1
        self.struck[fault] += 1
        self.tell(f"! {fault}")
        return True

    def tell(self, text: str) -> None:
        """A line of the trace."""
        if self._tell is not None:
            self._tell(text)
