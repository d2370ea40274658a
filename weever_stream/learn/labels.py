"""Labels: whole numbers that stand for the values of a column, keep their order, and stay what they are as values come.

For all values x, y of columns that meet: `label(x) op label(y)` if and only if `x op y`. Values that are only compared
for equality are numbered as they come. Ordered ones have labels with room between them; a new value gets one between
its neighbours, close to the lower, since what comes next often lies just above (a clock below an open end of
9999-12-31). Where there is no room left all labels are given out anew, with the most room where it was short.

Cost: a look-up for each distinct value of a batch; new values move the sorted ones along, some nanoseconds for each.
Values that no row has any more are held until `forget`.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa

from weever_stream.discover.predicates import Comparison, space_over
from weever_stream.index.arrays import as_arrow, numbers, present
from weever_stream.index.codes import coding, encode, flatten, in_domain
from weever_stream.rules import Column, ColumnType

if TYPE_CHECKING:
    from collections.abc import Sequence

    from numpy.typing import NDArray

    from weever_stream.discover.predicates import Space
    from weever_stream.index.arrays import Ints, Mask

__all__ = ["NULL", "Labelled", "Labels"]

NULL = -1
"""The label of a null."""
_FRONT, _SPREAD, _HOT = 1 << 28, 1 << 30, 1 << 29
"""Room before the first label, for all of them, and more where it was short; the rest of 31 bits is at the end."""
_LAST = (1 << 31) - 2


class Labels:
    """The labels of all columns that are compared with each other in one domain."""

    def __init__(self, domain: ColumnType, *, ordered: bool) -> None:
        self._how = coding(domain, ordered=False)
        self._ordered = ordered
        self._places: dict[Any, int] = {}
        self._values: NDArray[Any] = np.empty(0, np.int64 if self._how.exact else object)
        self._labels: Ints = np.empty(0, np.int64)
        self.renewed: tuple[Ints, Ints] | None = None
        """Old labels, ascending, and the new ones that take their places, if any were given out anew."""

    def label(self, column: pa.Array) -> NDArray[np.int32]:
        """The labels of some values; those of new ones are given out."""
        values, place, valid = self._distinct(column)
        found = self._in_order(values) if self._ordered else self._as_they_come(values)
        told = found[place] if len(found) else np.zeros(len(place), np.int64)
        told[~valid] = NULL
        return told.astype(np.int32)

    def _distinct(self, column: pa.Array) -> tuple[NDArray[Any], Ints, Mask]:
        """The distinct values, the place of each row's among them, and which rows have one."""
        array = flatten(column)
        if pa.types.is_null(array.type) or array.null_count == len(array):
            return self._values[:0], np.zeros(len(array), np.int64), np.zeros(len(array), np.bool_)
        if self._how.exact:
            codes, known = encode(array, self._how)
            valid = np.ones(len(codes), np.bool_) if known is None else known
            values, places = np.unique(codes[valid], return_inverse=True)
            place = np.zeros(len(codes), np.int64)
            place[valid] = places
            return values, place, valid
        coded = in_domain(array, self._how.domain).dictionary_encode()
        valid = present(coded.indices)
        place = np.where(valid, numbers(coded.indices, "i"), 0).astype(np.int64)
        values = np.empty(len(coded.dictionary), object)
        values[:] = coded.dictionary.to_pylist()
        return values, place, valid

    def _as_they_come(self, values: NDArray[Any]) -> Ints:
        places = self._places
        return np.array([places.setdefault(value, len(places)) for value in values.tolist()], np.int64)

    def _in_order(self, values: NDArray[Any]) -> Ints:
        at = np.searchsorted(self._values, values)
        known = at < len(self._values)
        known[known] = self._values[at[known]] == values[known]
        if not known.all():
            self._give(np.sort(values[~known]))
            at = np.searchsorted(self._values, values)
        return self._labels[at]

    def _give(self, new: NDArray[Any]) -> None:
        """Labels for new values, ascending."""
        at = np.searchsorted(self._values, new)
        edges = np.concatenate([[-1], self._labels, [_LAST + 1]])
        low, high = edges[at], edges[at + 1]
        starts = np.flatnonzero(np.concatenate([[True], at[1:] != at[:-1]]))
        several = np.diff(np.concatenate([starts, [len(at)]]))
        turn = np.arange(len(at)) - np.repeat(starts, several) + 1
        room = (high - low - 1) // np.repeat(several, several)
        values, old = np.insert(self._values, at, new), self._labels
        if len(old) and (room >= 1).all():
            usual = max(1, (_SPREAD // 4) // len(values))
            step = np.minimum(room, usual)
            # Before the first there is more room below than above: stay close to what is known.
            fresh = np.where(at == 0, high - (np.repeat(several, several) - turn + 1) * step, low + turn * step)
            self._values, self._labels = values, np.insert(old, at, fresh)
            return
        labels = _FRONT + np.arange(len(values), dtype=np.int64) * (_SPREAD // (len(values) + 1))
        if len(old):
            # Behind the last of the new ones that there was no room for.
            last = int(np.searchsorted(at, at[np.argmin(room)], side="right")) - 1
            labels[int(at[last]) + last + 1 :] += _HOT
            kept = np.ones(len(values), np.bool_)
            kept[at + np.arange(len(at))] = False
            first, again = self.renewed or (old, old)
            self.renewed = (first, labels[kept][np.searchsorted(old, again)])
        self._values, self._labels = values, labels

    def keep(self, used: Ints) -> Ints:
        """Forgets all values but those of some labels, ascending; the labels that these have from now on."""
        if self._ordered:
            kept = np.isin(self._labels, used, assume_unique=True)
            self._values, self._labels = self._values[kept], self._labels[kept]
            return used
        now = {label: at for at, label in enumerate(used.tolist())}
        self._places = {value: now[label] for value, label in self._places.items() if label in now}
        return np.arange(len(used))

    def _check(self) -> None:
        """Asserts that labels rise with their values."""
        assert len(self._values) == len(self._labels), "each value has a label"
        assert (np.diff(self._labels) > 0).all(), "labels rise"
        assert not len(self._labels) or 0 <= self._labels[0] <= self._labels[-1] <= _LAST, "labels have 31 bits"
        assert all(self._values[:-1] < self._values[1:]), "values rise"


@dataclass(frozen=True)
class Labelled:
    """The columns that comparisons read, each with its labels, and the comparisons over them."""

    columns: tuple[tuple[str, ColumnType], ...]
    labels: tuple[Labels, ...]
    """Those of each column; columns that meet share theirs."""
    comparisons: tuple[Comparison, ...]
    """The same comparisons, of labels: the n-th column is named by its number."""
    said: tuple[Comparison, ...]
    """The comparisons themselves: a column that is compared in two types is one there, as the laws of order need it."""

    @classmethod
    def of(cls, comparisons: Sequence[Comparison]) -> Labelled:
        """Empty labels for all columns that some comparisons across rows read."""
        groups: dict[object, Labels] = {}
        place: dict[tuple[str, ColumnType], int] = {}
        labels: list[Labels] = []
        meeting = {(name, c.domain) for c in comparisons if c.left.name != c.right.name for name in _names(c)}
        for one in comparisons:
            for name in _names(one):
                if (name, one.domain) not in place:
                    # Columns that meet any other in a domain share one set of labels there.
                    group = one.domain if (name, one.domain) in meeting else (name, one.domain)
                    shared = groups.setdefault(group, Labels(one.domain, ordered=one.ordered))
                    place[name, one.domain] = len(labels)
                    labels.append(shared)
        inner = tuple(
            replace(
                one,
                left=Column("t", str(place[one.left.name, one.domain])),
                right=Column("s", str(place[one.right.name, one.domain])),
                domain=ColumnType("integer"),
            )
            for one in comparisons
        )
        return cls(tuple(place), tuple(labels), inner, tuple(comparisons))

    @property
    def programs(self) -> NDArray[np.int32]:
        """For each comparison the columns of labels that it reads, where it stands, and whether it is ordered."""
        said = [(int(one.left.name), int(one.right.name), one.where, one.ordered) for one in self.comparisons]
        return np.array(said, np.int32).reshape(-1, 4)

    @property
    def schema(self) -> pa.Schema:
        """The columns of labels."""
        return pa.schema([(str(at), pa.int32()) for at in range(len(self.columns))])

    def space(self, told: NDArray[np.int32]) -> Space:
        """The comparisons over rows of labels, as discovery sees them."""
        columns = []
        for at in range(told.shape[1]):
            values = np.ascontiguousarray(told[:, at])
            nulls = values == NULL
            columns.append(pa.array(values, mask=nulls) if nulls.any() else as_arrow(values))
        if not columns:  # of what nothing compares only the number of rows is left
            return space_over(pa.table({"": as_arrow(np.zeros(len(told), np.int32))}).select([]), self.comparisons)
        return space_over(pa.table(columns, schema=self.schema), self.comparisons)

    def label(self, rows: pa.RecordBatch | pa.Table) -> NDArray[np.int32]:
        """The labels of some rows, a row each."""
        told = np.empty((rows.num_rows, len(self.columns)), np.int32)
        for _ in range(2):
            for at, ((name, _), labels) in enumerate(zip(self.columns, self.labels, strict=True)):
                told[:, at] = labels.label(rows.column(name))
            if all(labels.renewed is None for labels in self.labels):
                break  # else columns that came before those that share their labels have old ones
        return told

    def renew(self, told: NDArray[np.int32]) -> bool:
        """Puts labels that were given out anew in the place of old ones; true if there were any."""
        changed = False
        for at, labels in enumerate(self.labels):
            if labels.renewed is not None:
                old, new = labels.renewed
                valid = told[:, at] != NULL
                told[valid, at] = new[np.searchsorted(old, told[valid, at])]
                changed = True
        for labels in self.labels:
            labels.renewed = None
        return changed

    def forget(self, told: NDArray[np.int32]) -> None:
        """Forgets values that none of some rows has. Their labels may change."""
        for labels in dict.fromkeys(self.labels):
            mine = [at for at, one in enumerate(self.labels) if one is labels]
            some = told[:, mine]
            valid = some != NULL
            used = np.unique(some[valid])
            some[valid] = labels.keep(used.astype(np.int64))[np.searchsorted(used, some[valid])]
            told[:, mine] = some


def _names(one: Comparison) -> tuple[str, str]:
    return one.left.name, one.right.name
