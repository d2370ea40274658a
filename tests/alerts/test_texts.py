"""What is said, and that texts of rows do no harm. Catches: a mention, a link, markup, a terminal code or a header that
comes out of a value; a message that is too long for its place; wording that no longer says what it should.
"""

from __future__ import annotations

import json
import re
import unicodedata
from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.alerts.notices import hostile, notice
from weever_stream.alerts.notice import Example
from weever_stream.alerts.targets import pagerduty, slack, teams, webhook
from weever_stream.alerts.targets.email import _address, mail
from weever_stream.alerts.texts import as_json, cut, example_line, for_slack, one_line, paragraphs, title, valid

ATTACKS = {
    "mention": "<!channel> <!here> <@U123> <#C123> <!subteam^S1> @everyone",
    "link": "<https://evil.example|click> [click](https://evil.example)",
    "markdown": "**b** _i_ ~s~ `c` ```x``` # h\n> q",
    "html": "<script>alert(1)</script><img src=x onerror=alert(1)>\"'&amp;",
    "terminal": "\x1b[31mred\x1b[0m\x1b]0;title\x07\x1b]8;;http://evil\x1b\\x\x9b31m",
    "lines": "a\r\nBcc: evil@example.com\r\n\r\nbody\u2028b\u2029c\x85d\x0be\x0cf",
    "direction": "\u202egpj.exe\u2066\u2069\u200e\u061c\ufeff\u200b",
    "control": "".join(map(chr, range(32))) + "\x7f" + "".join(map(chr, range(0x80, 0xA0))),
    "surrogate": "a\ud800b\udfffc",
    "long": "x" * 1_000_000,
    "long_amp": "&<>" * 400_000,
    "long_wide": "漢" * 500_000,
    "quotes": '"quoted" \\ $(rm -rf /) `rm`; --rule',
    "entity": "&lt;!channel&gt;",
}
attacked = pytest.mark.parametrize("text", ATTACKS.values(), ids=ATTACKS)


@pytest.mark.parametrize(
    ("told", "words"),
    [
        (notice(), "zip_determines_city: 12 violations open in packages"),
        (notice(open=1), "zip_determines_city: 1 violation open in packages"),
        (notice(open=1_000_000), "zip_determines_city: 1,000,000 violations open in packages"),
        (notice("update", open=15), "zip_determines_city: now 15 violations open in packages"),
        (notice("resolve"), "zip_determines_city is fixed: no violation open in packages"),
        (notice("resolve", open=3), "zip_determines_city is over: 3 violations open in packages, fewer than it takes"),
        (
            notice("resolve", reason="rule_removed"),
            "zip_determines_city is over: the rule was taken out of the job of packages",
        ),
        (
            notice("resolve", reason="not_routed", open=7),
            "zip_determines_city is over: it is no longer told here, 7 violations open in packages",
        ),
        (notice(group={"zip": "1050"}), "zip_determines_city: 12 violations open in packages (zip = 1050)"),
        (notice(group_id="others"), "zip_determines_city: 12 violations open in packages (all other groups)"),
        (notice(group_id="a1b2"), "zip_determines_city: 12 violations open in packages (group a1b2)"),
        (notice(trial=True), "[trial] zip_determines_city: 12 violations open in packages"),
    ],
)
def test_the_title_says_it_in_plain_words(told: object, words: str) -> None:
    assert title(told) == words  # type: ignore[arg-type]


def test_the_body_says_all_there_is_to_know() -> None:
    examples = (
        Example("3fa9", "17", "23", {"zip": "1050", "city": "Wien"}, {"zip": "1050", "city": "Graz"}),
        Example("77b0"),
        Example("91cc", "5"),
    )
    assert paragraphs(notice(group={"zip": "1050"}, examples=examples, position="kafka 0:17", trial=True)) == [
        ["[trial] zip_determines_city: 12 violations open in packages (zip = 1050)"],
        ["This is a trial, sent by hand to see whether it arrives. Nothing is wrong."],
        [
            "Severity: error",
            "Job: packages-production",
            "Table: packages",
            "Group: zip = 1050",
            "Open now: 12",
            "Since: 2026-03-08 06:59:59 UTC",
            "As of: 2026-03-08 06:59:59 UTC",
            "Description: A zip code is in one city",
            "Owner: ana",
            "Runbook: https://wiki.example.com/zip?x=1&y=2",
            "Rule: t.city != s.city and t.zip = s.zip",
            "Source read up to: kafka 0:17",
        ],
        [
            "For example:",
            "- key 17 and key 23: zip 1050, city Wien | zip 1050, city Graz",
            "- violation 77b0",
            "- key 5",
        ],
        ["List them: weever violations JOB_FILE --rule zip_determines_city"],
    ]
    assert "List them" not in str(paragraphs(notice("resolve")))


@attacked
def test_a_line_stays_one_harmless_line(text: str) -> None:
    line = one_line(text, 300)
    assert len(line) <= 300
    assert "\x1b" not in line
    assert not [c for c in line if unicodedata.category(c) in ("Cc", "Cf", "Cs", "Zl", "Zp")]
    assert line.splitlines() in ([], [line])
    told = hostile(text)
    for lines in paragraphs(told):
        for one in lines:
            assert one.isprintable()
            assert len(one) < 3000


def test_what_a_terminal_would_obey_is_gone_with_its_arguments() -> None:
    assert one_line(ATTACKS["terminal"]) == "redx"
    assert one_line("a\r\nBcc: x\u2028y") == "a Bcc: x y"
    assert one_line("  a \t b  ") == "a b"
    assert one_line("क्\u200dष") == "क्\u200dष"  # joiners belong to the word
    assert one_line(17) == "17"


@given(st.text(st.characters(exclude_categories=[])), st.integers(1, 50))
def test_any_text_becomes_one_line_that_can_be_written(text: str, limit: int) -> None:
    line = one_line(text, limit)
    assert len(line) <= limit
    assert line.splitlines() in ([], [line])
    line.encode("utf-8")
    valid(text, limit).encode("utf-8")


@given(st.text("&<>ab", max_size=60), st.integers(5, 60))
def test_slack_sees_no_markup_and_no_broken_entity(text: str, limit: int) -> None:
    escaped = for_slack(text, limit)
    assert len(escaped) <= limit
    assert not re.search(r"[<>]|&(?!amp;|lt;|gt;)", escaped)
    plain = escaped.replace("&lt;", "<").replace("&gt;", ">").replace("&amp;", "&")
    assert plain == text or (plain.endswith("…") and text.startswith(plain[:-1]))


@attacked
@pytest.mark.parametrize("what", ["open", "update", "resolve"])
def test_slack_mentions_and_links_nothing_and_takes_it(text: str, what: str) -> None:
    told = slack.message(hostile(text, what))
    assert 1 <= len(told["blocks"]) <= 50
    texts = [block["text"]["text"] for block in told["blocks"]]
    assert all(block["text"]["verbatim"] is True for block in told["blocks"])
    for one in [*texts, told["text"]]:
        assert 1 <= len(one) <= 3000
        assert not re.search(r"[<>]", one)
        assert not re.search(r"&(?!amp;|lt;|gt;)", one)
        assert one.count("```") in (0, 2), "a value must not end the block that it is in"
    assert sum(map(len, texts)) < 13_000
    assert told["unfurl_links"] is told["unfurl_media"] is False


def test_slack_links_the_runbook_and_nothing_else() -> None:
    told = json.dumps(slack.message(notice(group={"zip": "https://evil.example"})))
    assert re.findall(r"<[^>]*>", told) == ["<https://wiki.example.com/zip?x=1&amp;y=2>"]


@attacked
@pytest.mark.parametrize("what", ["open", "resolve"])
def test_teams_has_values_in_plain_runs_only_and_takes_it(text: str, what: str) -> None:
    told = teams.message(hostile(text, what))
    assert len(told) <= 28_000
    card = json.loads(told)["attachments"][0]["content"]
    for block in card["body"]:
        assert block["type"] == "RichTextBlock"  # a TextBlock would read Markdown
        for run in block["inlines"]:
            assert run["type"] == "TextRun"
            assert run["text"].isprintable()
    assert "entities" not in card["msteams"]  # without which nobody is mentioned
    assert "actions" not in card  # the runbook of an attacker is no URL


def test_teams_shows_fewer_examples_rather_than_none_of_the_message() -> None:
    long = Example("v", "k" * 200, "k" * 200, {f"c{n}": "漢" * 200 for n in range(9)}, {"d": "漢" * 200})
    card = json.loads(teams.message(notice(examples=(long,) * 20)))["attachments"][0]["content"]
    lines = ["".join(run["text"] for run in block["inlines"]) for block in card["body"]]
    assert 2 <= sum(line.startswith("key kkk") for line in lines) < 20
    assert "Owner: ana" in lines


@attacked
def test_pagerduty_takes_it(text: str) -> None:
    told = pagerduty.event(replace(hostile(text), rule=text, dedup_key=text))
    assert 1 <= len(told["payload"]["summary"]) <= 1024
    assert told["payload"]["summary"].isprintable()
    assert 1 <= len(told["dedup_key"]) <= 255
    assert len(as_json(told)) < 512_000
    assert told["payload"]["source"] == "packages"


def test_long_dedup_keys_stay_apart_at_pagerduty() -> None:
    keys = [pagerduty.event(notice(dedup_key="k" * 400 + end))["dedup_key"] for end in "ab"]
    assert keys[0] != keys[1]
    assert pagerduty.event(notice("resolve", dedup_key="k" * 400 + "a"))["dedup_key"] == keys[0]


@attacked
def test_a_mail_has_no_header_and_no_markup_of_a_value(text: str) -> None:
    sender, to = _address("Weever <weever@example.com>"), _address("ops@example.com")
    told = replace(hostile(text), rule=text, table=text, dedup_key=text)
    message, first = mail(told, sender, (to,), None)
    written = bytes(message)
    head, _, _ = written.partition(b"\r\n\r\n")
    names = re.findall(rb"^([A-Za-z-]+):", head, re.M)
    assert sorted(names) == sorted(
        [
            b"From",
            b"To",
            b"Subject",
            b"Date",
            b"Message-ID",
            b"Auto-Submitted",
            b"X-Priority",
            b"MIME-Version",
            b"Content-Type",
        ]
    )
    assert all(len(line) <= 998 for line in written.split(b"\r\n"))
    assert re.fullmatch(r"<weever\.[0-9a-f]{40}@example\.com>", first)
    page = message.get_body(("html",))
    assert page is not None
    tags = set(re.findall(r"<[^>]*>", page.get_content()))
    assert tags == {
        *("<!DOCTYPE html>", "<html>", "</html>", "<head>", "</head>", "<body>", "</body>", '<meta charset="utf-8">'),
        *("<h3>", "</h3>", "<p>", "</p>", "<br>"),
    }
    assert len(written) < 300_000


@attacked
def test_the_webhook_says_values_as_they_are_but_short(text: str) -> None:
    told = json.loads(as_json(webhook.body(hostile(text))))
    [values] = told["examples"][0]["left_values"].values()
    assert values == re.sub("[\ud800-\udfff]", "\ufffd", cut(text, 1000))
    assert len(as_json(told)) < 400_000
    assert re.fullmatch(r"[!-~]{1,1000}", webhook.notice_id(replace(hostile(text), dedup_key=text)))


def test_the_command_that_lists_them_can_be_pasted() -> None:
    told = str(paragraphs(notice(rule="x; rm -rf ~ $(id)")))
    assert "--rule 'x; rm -rf ~ $(id)'" in told


def test_an_example_is_cut() -> None:
    wide = Example("v", "1", "2", {f"column{n}": "v" * 500 for n in range(50)})
    assert len(example_line(wide)) == 1000
