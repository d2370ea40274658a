"""How columns relate, as one SVG: columns are boxes, a rule is a numbered circle between the columns it is about.

Arrows lead from what determines to what is determined. Columns that are unique are marked. Only rules that the data
tests are drawn, the best first, as many as stay readable; those that need a sentence are left to the list below the
picture. Names of columns are data: they are escaped, and cut to what fits a box.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from html import escape
from itertools import pairwise
from typing import TYPE_CHECKING
from unicodedata import east_asian_width

from weever_stream.discover.layout import layered
from weever_stream.drawing import escaped, printable

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from weever_stream.discover.layout import Places
    from weever_stream.discover.telling import Entry

__all__ = ["Picture", "draw"]

_NAME = 22
_COLUMNS, _RULES = 26, 24
"""Columns and rules that are drawn at most."""
_DRAWN = 0.25
"""The surprise of a rule that is drawn."""
_CHAR, _HIGH, _ROUND = 7.9, 28.0, 11.0
_MARGIN = 10.0
_MARKS = {"rise": "↗ ↗", "fall": "↗ ↘", "apart": "≠", "unique": "key"}
_KEY = ' <tspan class="badge">key</tspan>'
_LEGEND = {
    "determines": "determines",
    "rise": "rise together",
    "fall": "one falls as the other rises",
    "unique": "unique together",
    "apart": "never the same in two rows",
    "within": "within one value of",
}


@dataclass(frozen=True)
class Picture:
    """The drawing, and what is not in it."""

    svg: str
    """Empty if there is nothing to draw."""
    unique: tuple[str, ...]
    """Columns that are unique by themselves."""
    constant: tuple[str, ...]
    alone: tuple[str, ...]
    """Columns that no drawn rule is about, and that are neither."""
    left_out: tuple[int, ...]
    """Numbers of the rules that are not drawn."""


@dataclass
class _Graph:
    """Nodes and edges as they are collected. A circle's column is None."""

    unique: frozenset[str]
    columns: dict[str, int] = field(default_factory=dict)
    nodes: list[tuple[str | None, Entry | None]] = field(default_factory=list)
    edges: list[tuple[int, int, str, bool]] = field(default_factory=list)
    """Left, right, style, whether it has an arrow."""

    def column(self, name: str) -> int:
        """The node of a column."""
        if name not in self.columns:
            self.columns[name] = len(self.nodes)
            self.nodes.append((name, None))
        return self.columns[name]

    def rule(self, entry: Entry, left: Sequence[str], right: Sequence[str], within: Sequence[str] = ()) -> None:
        """A circle for a rule, with lines from and to its columns."""
        saying = entry.saying
        arrow = saying.kind == "determines" or saying.manner == "determines"
        circle = len(self.nodes)
        self.nodes.append((None, entry))
        self.edges += [(self.column(name), circle, saying.kind, False) for name in left]
        self.edges += [(self.column(name), circle, "within", False) for name in within]
        self.edges += [(circle, self.column(name), saying.kind, arrow) for name in right]


def draw(columns: Sequence[str], told: Sequence[Entry], prefix: str = "") -> Picture:
    """The picture of some rules. `prefix` keeps its names apart from those of other pictures on a page."""
    tested = [entry for entry in told if entry.tested]
    singles = [entry for entry in tested if not entry.saying.within and not entry.saying.object]
    unique = _names(entry for entry in singles if entry.saying.kind == "unique")
    constant = _names(entry for entry in singles if entry.saying.kind == "constant")
    graph = _Graph(frozenset(unique))
    drawn = 0
    left_out = [entry.number for entry in told if not entry.tested]
    for entry in tested:
        if entry in singles and entry.saying.kind != "other":
            continue
        about = {name for one in entry.rules for name in one.columns}
        clear = max(one.interest.surprise for one in entry.rules) >= _DRAWN
        fits = clear and len(about | set(graph.columns)) <= _COLUMNS and drawn < _RULES
        if not fits or not _add(graph, entry):
            left_out.append(entry.number)
            continue
        drawn += 1
    known = {*graph.columns, *unique, *constant}
    alone = tuple(name for name in columns if name not in known)
    svg = _svg(graph, prefix) if graph.edges else ""
    return Picture(svg, unique, constant, alone, tuple(sorted(left_out)))


def _names(some: Iterable[Entry]) -> tuple[str, ...]:
    return tuple(dict.fromkeys(name for entry in some for name in entry.saying.subject))


def _add(graph: _Graph, entry: Entry) -> bool:
    """Adds a rule to the graph; false if it is of a kind that is not drawn."""
    saying = entry.saying
    if saying.kind == "unique":
        for within in saying.within:
            graph.rule(entry, [*within, *saying.subject], ())
    elif saying.kind in ("determines", "apart"):
        graph.rule(entry, saying.subject, saying.object)
    elif saying.kind in ("rise", "fall"):
        graph.rule(entry, saying.subject, saying.object, [name for some in saying.within for name in some])
    else:
        return False
    return True


def _svg(graph: _Graph, prefix: str) -> str:
    sizes = [
        (_width(name, name in graph.unique), _HIGH) if name is not None else (2 * _ROUND, 2 * _ROUND + 12)
        for name, _ in graph.nodes
    ]
    places = layered(sizes, [(left, right) for left, right, _, _ in graph.edges])
    used = [kind for kind in _LEGEND if any(style == kind for _, _, style, _ in graph.edges)]
    width = max(places.width + 2 * _MARGIN, 420.0)
    height = places.height + 2 * _MARGIN
    lines = [
        f'<svg class="picture" role="img" aria-labelledby="{prefix}pt {prefix}pd" width="{width:.0f}"'
        f' viewBox="0 0 {width:.0f} {height:.0f}" xmlns="http://www.w3.org/2000/svg">',
        f'<title id="{prefix}pt">How the columns relate</title>',
        f'<desc id="{prefix}pd">{_described(graph)}</desc>',
        f'<defs><marker id="{prefix}a" viewBox="0 0 8 8" refX="7" refY="4" markerWidth="8" markerHeight="8"'
        ' orient="auto-start-reverse"><path class="head" d="M0 0.5 8 4 0 7.5z"/></marker></defs>',
        f'<g transform="translate({(width - places.width) / 2:.1f} {_MARGIN:.0f})">',
        *_edges(graph, places, prefix),
        *_nodes(graph, places, sizes, prefix),
        "</g></svg>",
    ]
    return "\n".join(lines) + _legend(used)


def _edges(graph: _Graph, places: Places, prefix: str) -> list[str]:
    drawn = []
    for (_, _, style, arrow), points, turned in zip(graph.edges, places.paths, places.turned, strict=True):
        path = f"M{points[0][0]:.1f} {points[0][1]:.1f}"
        for (x, y), (to_x, to_y) in pairwise(points):
            bend = (to_x - x) / 2
            path += f" C{x + bend:.1f} {y:.1f} {to_x - bend:.1f} {to_y:.1f} {to_x:.1f} {to_y:.1f}"
        end = f' marker-{"start" if turned else "end"}="url(#{prefix}a)"' if arrow else ""
        drawn.append(f'<path class="line {style}" d="{path}"{end}/>')
    return drawn


def _nodes(graph: _Graph, places: Places, sizes: Sequence[tuple[float, float]], prefix: str) -> list[str]:
    drawn = []
    for (name, entry), (x, y), (wide, _) in zip(graph.nodes, places.centres, sizes, strict=True):
        if entry is not None:
            drawn.append(_circle(entry, x, y, prefix))
        elif name is not None:
            key = name in graph.unique
            label = f'<text x="{x:.1f}" y="{y + 4.5:.1f}">{_label(name)}{_KEY if key else ""}</text>'
            box = f'<rect x="{x - wide / 2:.1f}" y="{y - _HIGH / 2:.1f}" width="{wide:.1f}" height="{_HIGH}" rx="6"/>'
            told = escape(escaped(name[:200])) + (" (unique)" if key else "")
            drawn.append(f'<g class="column{" key" * key}"><title>{told}</title>{box}{label}</g>')
    return drawn


def _circle(entry: Entry, x: float, y: float, prefix: str) -> str:
    mark = _MARKS.get(entry.saying.kind, "")
    under = f'<text class="mark" x="{x:.1f}" y="{y + _ROUND + 11:.1f}">{mark}</text>' if mark else ""
    return (
        f'<a href="#{prefix}r{entry.number}"><g class="rule {entry.saying.kind}">'
        f"<title>{_words(entry)}</title>"
        f'<circle cx="{x:.1f}" cy="{y:.1f}" r="{_ROUND}"/>'
        f'<text x="{x:.1f}" y="{y + 4:.1f}">{entry.number}</text>{under}</g></a>'
    )


def _legend(used: Sequence[str]) -> str:
    items = []
    for kind in used:
        end = '<path class="head" d="M32 2.5 40 6 32 9.5z"/>' if kind == "determines" else ""
        mark = f" {_MARKS[kind]}" if kind in _MARKS else ""
        items.append(
            f'<li><svg class="sample" aria-hidden="true" width="42" height="12" viewBox="0 0 42 12">'
            f'<path class="line {kind}" d="M1 6H{34 if end else 41}"/>{end}</svg>{mark} {_LEGEND[kind]}</li>'
        )
    return f'\n<ul class="legend">{"".join(items)}</ul>'


def _described(graph: _Graph) -> str:
    """The picture for those who do not see it: its rules, a sentence each."""
    told = dict.fromkeys(f"{entry.number}: {_words(entry)}" for _, entry in graph.nodes if entry is not None)
    return ". ".join(told) + "."


def _words(entry: Entry) -> str:
    return escape(entry.saying.words(lambda name: printable(name)))


def _label(name: str) -> str:
    return escape(printable(name, _NAME))


def _width(name: str, key: bool) -> float:
    shown = printable(name, _NAME) + " key" * key
    return 18 + _CHAR * sum(2 if east_asian_width(one) in "WF" else 1 for one in shown)
