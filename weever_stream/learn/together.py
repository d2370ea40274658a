"""A learner and what is kept beside it over the same rows: built, changed, dumped and loaded together.

A companion has events of its own, as the errors of rules that almost hold, and a state that must not be ahead of the
learner's or behind it: so both are one dump, and take the same changes. Without companions it is the learner and a few
bytes. Cost: that of its parts; a dump passes through memory once more.
"""

from __future__ import annotations

from pathlib import Path
from tempfile import TemporaryDirectory
from typing import TYPE_CHECKING, Any, Protocol

from weever_stream.detect.sections import Format, pieces, unpacked
from weever_stream.errors import StateError
from weever_stream.learn.learner import Learner

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Sequence

    import pyarrow as pa

    from weever_stream.learn.events import RuleEvent
    from weever_stream.learn.learned import Learned

__all__ = ["Companion", "Together"]

_FORMAT = Format(
    b"WEEVERTG",
    1,
    "a dump of what was learned",
    "restore the file from a copy of the checkpoint, or `weever learn --anew` begins again",
)
_LEARNER = "learner"


class Companion(Protocol):
    """What is kept beside a learner. Made empty; then it is built or loaded."""

    @property
    def name(self) -> str:
        """Of its part of a dump."""
        ...

    def build(self, rows: pa.Table) -> Iterable[RuleEvent]:
        """Takes the first rows: key, learned columns, and `_commit_version`. What is told of them."""
        ...

    def apply(self, changes: pa.Table) -> Iterable[RuleEvent]:
        """Takes changes as `Learner.apply` does, after the learner has. What is told of them.

        The same state and changes must give the same events: a batch may be done again after a crash.
        """
        ...

    def dump(self, path: Path) -> None:
        """Writes its state to a file."""
        ...

    def load(self, path: Path) -> None:
        """Takes its state from a file."""
        ...


class Together:
    """A learner with its companions."""

    def __init__(self, learner: Learner, companions: Sequence[Companion] = ()) -> None:
        self.learner, self.companions = learner, tuple(companions)

    @classmethod
    def build(
        cls, rows: pa.Table, versions: str, companions: Sequence[Companion] = (), **settings: Any
    ) -> tuple[Together, list[RuleEvent]]:
        """From the first rows, whose sequences are in the column `versions`. `settings` are those of a learner."""
        learner = Learner(rows.drop_columns([versions]), sequence=rows.column(versions).to_numpy(), **settings)
        events = [event for companion in companions for event in companion.build(rows)]
        return cls(learner, companions), events

    def apply(self, changes: pa.Table) -> tuple[Learned, list[RuleEvent]]:
        """What changes teach, and what companions tell of them."""
        learned = self.learner.apply(changes)
        return learned, [event for companion in self.companions for event in companion.apply(changes)]

    def dump(self, path: Path) -> None:
        """All of it as one file."""
        with TemporaryDirectory(prefix=".weever-parts-", dir=path.parent) as folder:
            sections = []
            for name, write in [(_LEARNER, self.learner.dump), *((one.name, one.dump) for one in self.companions)]:
                part = Path(folder, name)
                write(part)
                sections.append((name, part.read_bytes()))
        with path.open("wb") as out:
            out.writelines(pieces(_FORMAT, {"parts": [name for name, _ in sections]}, sections))

    @classmethod
    def load(cls, path: Path, make: Callable[[], Sequence[Companion]] = tuple) -> Together:
        """As it was dumped, with new companions that `make` makes. Raises `StateError` where the file is damaged."""
        try:
            content = path.read_bytes()
        except OSError as error:
            raise StateError(
                f"{path} cannot be read: {error.strerror or type(error).__name__}", hint=_FORMAT.hint
            ) from None
        contents, sections = unpacked(_FORMAT, str(path), content)
        companions = make()
        if contents.get("parts") != [_LEARNER, *(one.name for one in companions)]:
            raise StateError(f"{path} was dumped with other parts: {contents.get('parts')}", hint=_FORMAT.hint)
        with TemporaryDirectory(prefix="weever-parts-") as folder:
            parts = [Path(folder, str(name)) for name in contents["parts"]]
            for part, section in zip(parts, sections, strict=True):
                part.write_bytes(section)
            learner = Learner.load(parts[0])
            for part, companion in zip(parts[1:], companions, strict=True):
                companion.load(part)
        return cls(learner, companions)
