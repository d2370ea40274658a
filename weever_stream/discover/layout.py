"""Places for the nodes of a small directed graph: layers from left to right, few crossings, the same every time.

The method of Sugiyama, Tagawa and Toda (1981): edges that would close a circle are turned around, each node stands one
layer right of what leads to it, edges that pass a layer get a place of their own in it, and each layer is ordered by
where its neighbours stand. Nothing depends on chance or on hashes: the same graph has the same places.
Cost: a few sweeps over nodes and edges; circles are looked for edge by edge, so it is meant for some hundred of them.
"""

from __future__ import annotations

from dataclasses import dataclass
from itertools import pairwise
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

__all__ = ["Places", "layered"]

_SWEEPS = 12
_GAP = 12.0
_BETWEEN = 46.0
_PASSING = 8.0
"""Height of a place that an edge passes through."""


@dataclass(frozen=True)
class Places:
    """Where everything stands. Nodes are numbers."""

    centres: tuple[tuple[float, float], ...]
    paths: tuple[tuple[tuple[float, float], ...], ...]
    """For each edge the points that it passes, from its left end to its right end; the ends are sides of nodes."""
    turned: tuple[bool, ...]
    """Whether an edge's target is its left end."""
    width: float
    height: float


def layered(sizes: Sequence[tuple[float, float]], edges: Sequence[tuple[int, int]]) -> Places:
    """Places for nodes of given width and height. An edge may lead to any other node, and back."""
    forward, turned = _without_circles(len(sizes), edges)
    layer = _layers(len(sizes), forward)
    heights = [size[1] for size in sizes]
    chains: list[list[int]] = []
    for left, right in forward:
        passed = list(range(len(heights), len(heights) + layer[right] - layer[left] - 1))
        heights += [_PASSING] * len(passed)
        layer += list(range(layer[left] + 1, layer[right]))
        chains.append([left, *passed, right])
    columns: list[list[int]] = [[] for _ in range(max(layer, default=-1) + 1)]
    for node, at in enumerate(layer):
        columns[at].append(node)
    before, after = _neighbours(len(heights), chains)
    _order(columns, before, after)
    y = _heights(columns, heights, before, after)
    widths = [max((sizes[node][0] for node in column if node < len(sizes)), default=0.0) for column in columns]
    starts = [sum(widths[:at]) + _BETWEEN * at for at in range(len(widths))]
    x = [starts[at] + widths[at] / 2 for at in layer]
    paths = []
    for chain in chains:
        left, right = chain[0], chain[-1]
        points = [(x[left] + sizes[left][0] / 2, y[left])]
        for node in chain[1:-1]:
            # an edge passes a layer level, as long as the layer is wide
            half = widths[layer[node]] / 2
            points += [(x[node] - half, y[node]), (x[node] + half, y[node])]
        paths.append((*points, (x[right] - sizes[right][0] / 2, y[right])))
    height = max((y[node] + heights[node] / 2 for node in range(len(heights))), default=0.0)
    width = starts[-1] + widths[-1] if starts else 0.0
    return Places(tuple((x[at], y[at]) for at in range(len(sizes))), tuple(paths), tuple(turned), width, height)


def _without_circles(nodes: int, edges: Iterable[tuple[int, int]]) -> tuple[list[tuple[int, int]], list[bool]]:
    """The edges, those turned around that would close a circle with earlier ones."""
    leads: list[list[int]] = [[] for _ in range(nodes)]
    forward, turned = [], []
    for one, other in edges:
        around = _reaches(leads, other, one)
        left, right = (other, one) if around else (one, other)
        leads[left].append(right)
        forward.append((left, right))
        turned.append(around)
    return forward, turned


def _reaches(leads: Sequence[Sequence[int]], start: int, end: int) -> bool:
    seen, waiting = {start}, [start]
    while waiting:
        node = waiting.pop()
        if node == end:
            return True
        for following in leads[node]:
            if following not in seen:
                seen.add(following)
                waiting.append(following)
    return False


def _layers(nodes: int, forward: Sequence[tuple[int, int]]) -> list[int]:
    """The layer of each node: right of all that lead to it, and close to what it leads to."""
    layer = [0] * nodes
    for _ in range(nodes):
        moved = False
        for left, right in forward:
            if layer[right] <= layer[left]:
                layer[right], moved = layer[left] + 1, True
        if not moved:
            break
    led = {right for _, right in forward}
    for node in range(nodes):
        following = [layer[right] for left, right in forward if left == node]
        if node not in led and following:
            layer[node] = min(following) - 1
    return layer


def _neighbours(nodes: int, chains: Iterable[Sequence[int]]) -> tuple[list[list[int]], list[list[int]]]:
    before: list[list[int]] = [[] for _ in range(nodes)]
    after: list[list[int]] = [[] for _ in range(nodes)]
    for chain in chains:
        for left, right in pairwise(chain):
            after[left].append(right)
            before[right].append(left)
    return before, after


def _order(columns: list[list[int]], before: Sequence[Sequence[int]], after: Sequence[Sequence[int]]) -> None:
    """Orders each layer by the middle of its neighbours; keeps the order with the fewest crossings seen."""
    best, fewest = [list(column) for column in columns], _crossings(columns, after)
    for sweep in range(_SWEEPS):
        neighbours = before if sweep % 2 == 0 else after
        for column in columns if sweep % 2 == 0 else reversed(columns):
            place = {node: float(at) for some in columns for at, node in enumerate(some)}
            middle = {
                node: sum(place[one] for one in neighbours[node]) / len(neighbours[node])
                if neighbours[node]
                else place[node]
                for node in column
            }
            column.sort(key=middle.__getitem__)
        crossings = _crossings(columns, after)
        if crossings < fewest:
            best, fewest = [list(column) for column in columns], crossings
    for at, column in enumerate(best):
        columns[at][:] = column


def _crossings(columns: Sequence[Sequence[int]], after: Sequence[Sequence[int]]) -> int:
    count = 0
    for column, following in pairwise(columns):
        place = {node: at for at, node in enumerate(following)}
        ends = [place[right] for node in column for right in sorted(after[node], key=place.__getitem__)]
        count += sum(one > other for at, one in enumerate(ends) for other in ends[at + 1 :])
    return count


def _heights(
    columns: Sequence[Sequence[int]],
    heights: Sequence[float],
    before: Sequence[Sequence[int]],
    after: Sequence[Sequence[int]],
) -> list[float]:
    """The vertical middle of each node: near its neighbours, without overlap, from 0 on."""
    y = [0.0] * len(heights)
    for column in columns:
        _apart(column, heights, y, dict.fromkeys(column, 0.0))
    for sweep in range(_SWEEPS):
        for column in columns if sweep % 2 == 0 else list(reversed(columns)):
            wished = {}
            for node in column:
                near = [*before[node], *after[node]]
                wished[node] = sum(y[one] for one in near) / len(near) if near else y[node]
            _apart(column, heights, y, wished)
    top = min((y[node] - heights[node] / 2 for node in range(len(heights))), default=0.0)
    return [one - top for one in y]


def _apart(column: Sequence[int], heights: Sequence[float], y: list[float], wished: Mapping[int, float]) -> None:
    """The wished places, moved apart in blocks: a block stands where its nodes wish to on average."""
    blocks: list[tuple[float, list[int]]] = []
    for node in column:
        blocks.append((wished[node], [node]))
        while len(blocks) > 1:
            (upper, above), (lower, below) = blocks[-2:]
            room = (_extent(above, heights) + _extent(below, heights)) / 2 + _GAP
            if lower - upper >= room:
                break
            both = above + below
            offsets = _offsets(both, heights)
            blocks[-2:] = [(sum(wished[one] - offsets[one] for one in both) / len(both), both)]
    for middle, nodes in blocks:
        offsets = _offsets(nodes, heights)
        for node in nodes:
            y[node] = middle + offsets[node]


def _extent(nodes: Sequence[int], heights: Sequence[float]) -> float:
    return sum(heights[node] for node in nodes) + _GAP * (len(nodes) - 1)


def _offsets(nodes: Sequence[int], heights: Sequence[float]) -> dict[int, float]:
    """Where nodes of a block stand, from its middle."""
    found, top = {}, -_extent(nodes, heights) / 2
    for node in nodes:
        found[node] = top + heights[node] / 2
        top += heights[node] + _GAP
    return found
