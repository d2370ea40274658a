"""The plots of docs/benchmarks.md, drawn from the kept results: ratios against their targets, and cost as rows grow.

    python -m benchmarks.plots

Plain SVG with text as text, readable on a light and on a dark page, the same bytes for the same results.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from benchmarks.children import ROOT
from benchmarks.results import load

if TYPE_CHECKING:
    from matplotlib.axes import Axes

__all__ = ["FOLDER", "draw"]

FOLDER = ROOT / "docs" / "benchmarks"
_MET, _MISSED, _TARGET, _TEXT = "#2f7d6b", "#c4573a", "#8a6d1d", "#6b7280"
_LINES = ("#2f7d6b", "#4b6cb7", "#c4573a", "#8a6d1d", "#7b4fa3")
_WIDTH = 7.2
_CLIP = 12.0
"""A bar longer than this is cut off and its value written on it."""


def draw() -> list[Path]:
    """Draws what there are results for; returns the files written."""
    import matplotlib

    matplotlib.use("svg")
    matplotlib.rcParams.update(
        {
            "svg.hashsalt": "weever",
            "svg.fonttype": "none",
            "font.family": "sans-serif",
            "font.size": 9,
            "text.color": _TEXT,
            "axes.labelcolor": _TEXT,
            "axes.edgecolor": _TEXT,
            "xtick.color": _TEXT,
            "ytick.color": _TEXT,
        }
    )
    FOLDER.mkdir(parents=True, exist_ok=True)
    return [path for path in (_detector(), _singles(), _check("count"), _check("list"), _growth()) if path]


def _detector() -> Path | None:
    from benchmarks.detector import TIMES

    what = "CPU of inserts, times the baseline's"
    return _against_one("detector", what, lambda one: f"{one['rule']}, batches of {one['batch']:,}", "ratio", TIMES)


def _singles() -> Path | None:
    from benchmarks.detector import SINGLE_US

    what = "microseconds of CPU for an insert of one row"
    return _against_one("singles", what, lambda one: f"{one['rule']}, {one['form']}", "microseconds", SINGLE_US)


def _against_one(
    part: str, what: str, name: Callable[[dict[str, Any]], str], figure: str, target: float
) -> Path | None:
    """A bar for each record of a part, and one target for all."""
    found = load(part)
    if found is None:
        return None
    records = found["records"]
    figures = [one[figure] for one in records]
    return _bars(part, what, [name(one) for one in records], figures, [target] * len(records))


def _check(mode: str) -> Path | None:
    from benchmarks.check import COUNTING, LISTING

    found = load(f"check-{mode}")
    if found is None:
        return None
    names = [one["rule"] for one in found["records"]]
    targets = [COUNTING[name] if mode == "count" else LISTING for name in names]
    label = f"CPU of check --mode {mode}, times DuckDB's"
    return _bars(f"check-{mode}", label, names, [one["ratio"] for one in found["records"]], targets)


def _bars(name: str, label: str, names: Sequence[str], values: Sequence[float], targets: Sequence[float]) -> Path:
    """Horizontal bars, each with a mark where its target is."""
    from matplotlib import pyplot

    height = 0.6 + 0.27 * len(names)
    figure, axes = pyplot.subplots(figsize=(_WIDTH, height), layout="constrained")
    end = min(max(*values, *targets), _CLIP * max(targets)) * 1.12
    for at, (value, target) in enumerate(zip(values, targets, strict=True)):
        axes.barh(at, min(value, end), height=0.62, color=_MET if value <= target else _MISSED)
        axes.plot([target, target], [at - 0.42, at + 0.42], color=_TARGET, linewidth=2)
        digits = f"{value:.0f}" if value >= 100 else f"{value:.2f}"
        axes.text(min(value, end) + end * 0.008, at, digits, va="center", fontsize=8)
    axes.set_yticks(range(len(names)), names)
    axes.set_xlim(0, end * 1.06)
    axes.invert_yaxis()
    axes.set_xlabel(f"{label} (mark: the target, at most)")
    return _saved(figure, axes, name)


def _growth() -> Path | None:
    from matplotlib import pyplot

    found = load("growth")
    if found is None:
        return None
    figure, axes = pyplot.subplots(figsize=(_WIDTH, 3.2), layout="constrained")
    for color, one in zip(_LINES, found["records"], strict=False):
        points = one["points"]
        rows = [point["rows"] / 1e6 for point in points]
        less = [point["half_us"] - point["half_pairs"] * one["ns_a_pair"] / 1e3 for point in points]
        axes.plot(rows, less, color=color, linewidth=1.6)
        axes.annotate(one["rule"], (rows[-1], less[-1]), (4, 0), textcoords="offset points", va="center", color=color)
    axes.set_ylim(bottom=0)
    axes.set_xlabel("million rows held")
    axes.set_ylabel("us of CPU per insert")
    return _saved(figure, axes, "growth")


def _saved(figure: Any, axes: Axes, name: str) -> Path:
    from matplotlib import pyplot

    axes.spines[["top", "right"]].set_visible(False)
    path = FOLDER / f"{name}.svg"
    figure.savefig(path, transparent=True, metadata={"Date": None})
    pyplot.close(figure)
    return path


if __name__ == "__main__":
    for drawn in draw():
        print(drawn)
