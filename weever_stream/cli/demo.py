"""`weever demo`: watch violations appear and vanish while a table changes.

Runs the in-process engine over a change feed that it makes. Ends by itself; nothing is left behind unless `--save`
names a folder for the rules and the table, to go on with.
"""

from __future__ import annotations

import time
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from weever_stream.cli.demo_feed import RULE_FILE, feed, parcels
from weever_stream.errors import OutputError

if TYPE_CHECKING:
    from rich.console import Console

    from weever_stream.detect import Detector, Violations

__all__ = ["demo"]

_SHOWN = 2
"""Violations of one step that are shown; the others are counted."""


def demo(
    pause: Annotated[float, typer.Option(min=0, max=10, help="Seconds between two batches of changes.")] = 0.7,
    save: Annotated[Path | None, typer.Option(help="Leave the rules and the table in this folder.")] = None,
) -> None:
    """Watch violations appear and vanish while a made-up table of parcels changes."""
    from rich.console import Console

    console = Console(highlight=False, soft_wrap=True)
    folder = _saved(save) if save else None
    console.print("[bold]These are the rules.[/] No two different parcels t and s may ever be like this:\n")
    console.print(RULE_FILE, style="dim", markup=False)
    _watch(console, pause if console.is_terminal else 0)
    _what_next(console, folder)


def _watch(console: Console, pause: float) -> None:
    with console.status("starting the engine (its kernels are compiled once, on the first run: up to half a minute)"):
        from weever_stream.detect import Detector
        from weever_stream.rules import read_rules_text

        detector = Detector(read_rules_text(RULE_FILE, path="rules.yaml"))
        warm = Detector(read_rules_text(RULE_FILE, path="rules.yaml"))
        warm.apply(feed()[0].changes)
    console.print("[bold]And this is what happens to the table.[/]\n")
    for step in feed():
        started = time.perf_counter()
        deltas = detector.apply(step.changes)
        took = (time.perf_counter() - started) * 1000
        changes = "1 change" if len(step.changes) == 1 else f"{len(step.changes)} changes"
        console.print(f"[cyan]>[/] {step.story}  [dim]({changes}, {took:.1f} ms)[/]")
        _show(console, deltas.removed, "[green]- fixed   [/]")
        _show(console, deltas.added, "[red]+ violated[/]")
        console.print(f"  [dim]open: {_open(detector)}[/]\n")
        time.sleep(pause)


def _show(console: Console, violations: Violations, mark: str) -> None:
    from rich.markup import escape

    for violation in violations[:_SHOWN]:
        console.print(f"  {mark} [bold]{violation.rule}[/]")
        for row in (violation.left, violation.right or {}):
            values = "  ".join(f"{name} {value}" for name, value in row.items())
            console.print(f"             {escape(values)}")
    if len(violations) > _SHOWN:
        console.print(f"  {mark} … and {len(violations) - _SHOWN} more pairs")


def _open(detector: Detector) -> str:
    return ", ".join(f"{rule.name} {detector.count(rule)}" for rule in detector.rules)


def _saved(folder: Path) -> Path:
    rows = parcels()
    rows[1]["city"] = "Limaa"
    lines = [",".join(rows[0]), *(",".join(str(cell) for cell in row.values()) for row in rows)]
    files = {folder / "rules.yaml": RULE_FILE, folder / "packages.csv": "\n".join(lines) + "\n"}
    try:
        folder.mkdir(parents=True, exist_ok=True)
        for path, text in files.items():
            if path.exists() and path.read_bytes() != text.encode():
                raise OutputError(f"{path} is there already and is not the demo's", hint="name another folder")
        for path, text in files.items():
            path.write_text(text, encoding="utf-8", newline="\n")
    except OSError as error:
        raise OutputError(f"{folder} could not be written: {error.strerror}", hint="name another folder") from None
    return folder


def _what_next(console: Console, folder: Path | None) -> None:
    console.print("[bold]Try next[/]")
    if folder is None:
        console.print(
            "  weever demo --save parcels        [dim]leaves the rules and a table with a mistake in a folder[/]"
        )
        folder = Path("parcels")
    console.print(
        f"  weever check {folder}/rules.yaml {folder}/packages.csv    [dim]finds the mistake, without Spark[/]"
    )
    console.print(f"  weever explain {folder}/rules.yaml {folder}/packages.csv  [dim]how the rules are kept[/]")
    console.print("  weever check YOUR_RULES.yaml YOUR_TABLE.parquet --mode count   [dim]your own table[/]")
