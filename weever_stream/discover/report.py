"""The report of a discovery for people: one HTML page, or a part of one for a notebook.

It needs no network and no script: styles and the picture are in it. It follows the reader's light or dark mode, and
prints. The same discovery gives the same bytes. Values and names of columns are data: they are cut, their control
characters are shown as escapes, and nothing in them is taken for markup; the page forbids scripts besides.
"""

from __future__ import annotations

import json
from hashlib import sha256
from html import escape
from typing import TYPE_CHECKING

from weever_stream.discover.picture import draw
from weever_stream.discover.telling import UNTESTED, count, entries
from weever_stream.drawing import escaped, printable
from weever_stream.rules import write_rule

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from weever_stream.discover.picture import Picture
    from weever_stream.discover.result import Discovery, Found
    from weever_stream.discover.telling import Entry

__all__ = ["fragment", "page"]

_RULE = 1000
"""Characters of a rule that are shown."""
_LISTED = 60
"""Columns that are named in a list."""
_NOTHING_LOADS = "default-src 'none'; style-src 'unsafe-inline'"
_STYLE = """
.weever{--ink:#1c2430;--soft:#5b6675;--line:#c9d1dc;--face:#fff;--tint:#f4f6f9;--blue:#1f5fbf;--green:#1d7f52;
--red:#b3372f;--gold:#946200;--violet:#6b4bb8;color:var(--ink);background:var(--face);line-height:1.45;
font-family:system-ui,-apple-system,"Segoe UI",Roboto,"Helvetica Neue",Arial,sans-serif;font-size:15px}
@media (prefers-color-scheme:dark){.weever{--ink:#e4e9f0;--soft:#9aa7b8;--line:#3b4657;--face:#151a21;--tint:#1e2530;
--blue:#78aefc;--green:#63c998;--red:#f0857c;--gold:#e0b14e;--violet:#b59cf5}}
.weever *{box-sizing:border-box}
.weever h1{font-size:1.6em;margin:0 0 .2em}.weever h2{font-size:1.2em;margin:1.6em 0 .5em}
.weever h3{font-size:1.02em;font-weight:500;margin:0}.weever h3 b{font-weight:650}
.weever p{margin:.4em 0}.weever .soft{color:var(--soft)}
.weever .facts{display:flex;flex-wrap:wrap;gap:.5em 2em;margin:.8em 0;padding:0}
.weever .facts div{display:flex;flex-direction:column-reverse}
.weever .facts dt{color:var(--soft);font-size:.85em}.weever .facts dd{margin:0;font-size:1.25em;font-weight:600}
.weever code,.weever .picture .column text{font-family:ui-monospace,SFMono-Regular,Menlo,Consolas,"DejaVu Sans Mono",
monospace}
.weever code{font-size:.86em;overflow-wrap:anywhere}
.weever .scroll{overflow-x:auto}
.weever .card{border:1px solid var(--line);border-radius:8px;padding:.7em .9em;margin:.6em 0;break-inside:avoid}
.weever .card:target{border-color:var(--blue);box-shadow:0 0 0 1px var(--blue)}
.weever .number{display:inline-block;min-width:1.7em;text-align:center;border:1px solid var(--line);
border-radius:1em;margin-right:.5em;color:var(--soft);font-size:.85em}
.weever table{border-collapse:collapse;font-size:.88em;margin:.5em 0 0;text-align:left;background:none}
.weever th,.weever td{padding:.22em .9em .22em 0;border:0;border-bottom:1px solid var(--line);vertical-align:top;
text-align:left;background:none}
.weever th{color:var(--soft);font-weight:500;white-space:nowrap}
.weever tr:last-child>*{border-bottom:0}
.weever .n{text-align:right;font-variant-numeric:tabular-nums;white-space:nowrap}
.weever .bad{color:var(--red)}.weever .differ{color:var(--red);font-weight:600}
.weever .counts{width:100%}.weever .counts .n{width:6.2em;padding-left:.4em}
.weever caption{text-align:left;color:var(--soft);white-space:nowrap}
.weever .examples{display:flex;flex-wrap:wrap;gap:0 2.5em;align-items:flex-start}
.weever .examples tbody{border-bottom:1px solid var(--line)}.weever .examples tbody>tr>*{border-bottom:0}
.weever .note{border-left:3px solid var(--gold);padding-left:.7em}
.weever .chip{display:inline-block;background:var(--tint);border:1px solid var(--line);border-radius:6px;
padding:0 .5em;margin:.1em .15em}
.weever .picture{max-width:100%;height:auto;display:block}
.weever .picture text{text-anchor:middle;fill:var(--ink);font-size:13px;unicode-bidi:isolate}
.weever .picture .column rect{fill:var(--tint);stroke:var(--line)}
.weever .picture .badge{fill:var(--gold);font-size:10px}
.weever .picture .key rect{stroke:var(--gold);stroke-width:1.6}
.weever .picture .rule circle{fill:var(--face);stroke:var(--c);stroke-width:1.6}
.weever .picture .rule text{font-size:11px}.weever .picture .rule .mark{fill:var(--c);font-size:10px}
.weever .picture a{text-decoration:none}
.weever .picture a:focus circle,.weever .picture a:hover circle{fill:var(--tint)}
.weever .line{fill:none;stroke:var(--c);stroke-width:1.5}
.weever .determines{--c:var(--blue)}.weever .rise,.weever .fall{--c:var(--green)}
.weever .unique{--c:var(--gold)}.weever .apart{--c:var(--violet)}.weever .within{--c:var(--soft)}
.weever path.rise,.weever path.fall{stroke-dasharray:6 3}.weever path.apart,.weever path.within{stroke-dasharray:2 3}
.weever .head{fill:var(--blue)}
.weever .legend{display:flex;flex-wrap:wrap;gap:.2em 1.6em;list-style:none;padding:0;margin:.6em 0;font-size:.85em;
color:var(--soft)}
.weever .sample{vertical-align:middle;margin-right:.3em}
@media print{.weever{--ink:#000;--soft:#444;--line:#bbb;--face:#fff;--tint:#f4f4f4;--blue:#1f5fbf;--green:#1d7f52;
--red:#b3372f;--gold:#946200;--violet:#6b4bb8;font-size:10.5pt}.weever .scroll{overflow:visible}}
"""
_PAGE = "body{margin:0}.weever{max-width:66em;margin:0 auto;padding:1.6em 1.4em;min-height:100vh}"
_OUTSIDE = "html{background:#fff}@media (prefers-color-scheme:dark){html{background:#151a21}}"


def page(found: Discovery) -> str:
    """A page of its own."""
    title = f"Rules of {printable(found.table, 80)}"
    return (
        '<!DOCTYPE html>\n<html lang="en">\n<head>\n<meta charset="utf-8">\n'
        f'<meta http-equiv="Content-Security-Policy" content="{_NOTHING_LOADS}">\n'
        '<meta name="viewport" content="width=device-width, initial-scale=1">\n'
        '<meta name="color-scheme" content="light dark">\n'
        f"<title>{escape(title)}</title>\n<style>{_OUTSIDE}{_PAGE}</style>\n</head>\n<body>\n"
        f"{fragment(found)}\n</body>\n</html>\n"
    )


def fragment(found: Discovery) -> str:
    """The report as a part of another page: its styles reach nothing else, and its names clash with no other's."""
    content = json.dumps(found.as_json(), default=str).encode("utf-8", "surrogatepass")
    prefix = f"w{sha256(content).hexdigest()[:10]}-"
    told = entries(found)
    parts = [
        f"<style>{_STYLE}</style>",
        '<main class="weever">',
        f"<h1>Rules of {_name(found.table)}</h1>",
        *_looked_at(found, len(told)),
        *_pictured(draw(found.columns, told, prefix)),
        *_listed("Rules", [entry for entry in told if entry.tested], prefix),
        *_listed(
            "Rules that say little",
            [entry for entry in told if not entry.tested],
            prefix,
            f"{UNTESTED[0].upper()}{UNTESTED[1:]}. They may be true, and they may be accidents.",
        ),
        *_explained(),
        "</main>",
    ]
    # A lone surrogate, which a name of a file can hold, is no character that a page can have.
    return "\n".join(parts).encode("utf-8", "replace").decode()


def _looked_at(found: Discovery, groups: int) -> Iterator[str]:
    facts = {"rows": f"{found.rows:,}", "columns": f"{len(found.columns):,}"}
    if found.pairs is not None:
        facts["pairs of rows looked at"] = f"{found.pairs:,}"
    facts["minimal rules found"] = f"{found.total:,}"
    facts["shown here" if groups == len(found.rules) else f"shown here, in {groups:,} groups"] = f"{len(found.rules):,}"
    yield '<dl class="facts">'
    yield from (f"<div><dt>{label}</dt><dd>{value}</dd></div>" for label, value in facts.items())
    yield "</dl>"
    if found.exact:
        yield "<p>All minimal rules that were asked for were found: comparing all pairs gives the same ones.</p>"
    else:
        yield "<p>The table may have more rules. Each that is shown was counted over the whole table.</p>"
    for note in found.notes:
        yield f'<p class="note">{escape(escaped(note[:_RULE]))}</p>'


def _pictured(picture: Picture) -> Iterator[str]:
    yield "<h2>How the columns relate</h2>"
    if picture.svg:
        yield f'<figure class="scroll" style="margin:0">{picture.svg}</figure>'
    for label, names in (
        ("Unique", picture.unique),
        ("The same in all rows", picture.constant),
        ("In no rule of this picture", picture.alone),
    ):
        if names:
            more = f" and {len(names) - _LISTED} more" if len(names) > _LISTED else ""
            chips = "".join(f'<span class="chip">{_name(name)}</span>' for name in names[:_LISTED])
            yield f'<p><span class="soft">{label}:</span> {chips}{more}</p>'
    if picture.svg and picture.left_out:
        many = ", ".join(map(str, picture.left_out[:_LISTED]))
        yield f'<p class="soft">Not in the picture: rules {many}.</p>'


def _listed(title: str, told: Sequence[Entry], prefix: str, before: str = "") -> Iterator[str]:
    if not told:
        return
    yield f"<h2>{title}</h2>"
    if before:
        yield f'<p class="soft">{before}</p>'
    for entry in told:
        words = entry.saying.words(lambda name: f"<b>{_name(name)}</b>")
        yield f'<section class="card" id="{prefix}r{entry.number}">'
        yield f'<h3><span class="number">{entry.number}</span>{words}</h3>'
        yield from _counts(entry.rules)
        broken = [one for one in entry.rules if one.examples]
        if broken:
            yield '<div class="examples">'
            for one in broken:
                yield from _examples(one)
            yield "</div>"
        yield "</section>"


def _counts(rules: Sequence[Found]) -> Iterator[str]:
    yield '<div class="scroll"><table class="counts"><thead><tr><th scope="col">No two rows may have</th>'
    heads = ["support", "violations", "by chance", "error", "short", "covered", "surprising", "score"]
    yield "".join(f'<th scope="col" class="n">{head}</th>' for head in heads) + "</tr></thead><tbody>"
    for one in rules:
        rule = escaped(write_rule(one.rule))
        rule = rule if len(rule) <= _RULE else rule[: _RULE - 1] + "…"
        chance = "" if one.chance is None else f"{one.chance:,}"
        numbers = [f"{one.support:,}", f"{one.violations:,}", chance, f"{one.error:.2g}" if one.violations else "0"]
        weights = (one.interest.succinctness, one.interest.coverage, one.interest.surprise, one.interest.score)
        numbers += [f"{weight:.2f}" for weight in weights]
        cells = "".join(
            f'<td class="n{" bad" * (at in (1, 3) and one.violations > 0)}">{number}</td>'
            for at, number in enumerate(numbers)
        )
        yield f"<tr><td><code><bdi>{escape(rule)}</bdi></code></td>{cells}</tr>"
    yield "</tbody></table></div>"


def _examples(one: Found) -> Iterator[str]:
    """Pairs of rows that break a rule, with what it reads of them."""
    some = "Some of " if len(one.examples) < one.violations else ""
    many = f"{some}{count(one.violations, 'violation')}, in {count(one.rows_involved, 'row')}"
    yield f'<div class="scroll"><table><caption>{many}</caption><thead><tr>'
    yield '<th scope="col" class="n">row</th>'
    yield "".join(f'<th scope="col">{_name(name)}</th>' for name in one.columns) + "</tr></thead>"
    for pair, values in zip(one.examples, one.values or ((),) * len(one.examples), strict=True):
        rows = [number for number in pair if number is not None]
        yield "<tbody>"
        for at, number in enumerate(rows):
            texts = values[at] if values else ("",) * len(one.columns)
            others = values[1 - at] if len(values) > 1 else texts
            cells = "".join(
                f'<td class="{"differ" if mine != theirs else "same"}"><bdi>{escape(mine)}</bdi></td>'
                for mine, theirs in zip(texts, others, strict=True)
            )
            yield f'<tr><th scope="row" class="n">{number:,}</th>{cells}</tr>'
        yield "</tbody>"
    yield "</table></div>"


def _explained() -> Iterator[str]:
    yield "<h2>How to read this</h2>"
    yield (
        '<p class="soft">A rule names what no two rows t and s may have at once. <em>Support</em> is the number of'
        " pairs of rows that test the rule: all but one of its predicates hold for them, and no value that the last one"
        " compares is null. <em>Violations</em> are pairs of rows that break it, <em>by chance</em> is about how many"
        " there would be if its predicates had nothing to do with each other, <em>error</em> is the share of violations"
        " in all pairs. A rule is"
        " <em>short</em> if it needs few columns and operators, <em>covered</em> if many pairs come close to breaking"
        " it, and <em>surprising</em> if columns that have nothing to do with each other would break it often; the"
        " <em>score</em> weighs these. Rules that better ones imply are not shown.</p>"
    )


def _name(name: str, width: int = 48) -> str:
    """A name that is data, as markup: escaped, cut, and kept from turning the direction of what follows."""
    return f"<bdi>{escape(printable(name, width))}</bdi>"
