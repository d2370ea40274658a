"""`weever check` as its users meet it: output, exit codes, environment, files, pipes. Mostly in process; a few by shell."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from weever_stream.cli import run

RULES = """\
table: packages
key: package_code
rules:
  - name: package_code_is_unique
    unique: [package_code]
  - name: distance_is_symmetric
    deny: t.origin = s.destination and t.destination = s.origin and t.distance != s.distance
    severity: critical
  - name: bigger_parcel_costs_more
    deny: t.distance = s.distance and t.volume < s.volume and t.postage > s.postage
    severity: warning
    description: Of two parcels that travel equally far the smaller one must not cost more.
"""
DATA = """\
package_code,origin,destination,distance,volume,postage
0,London,Cape Town,9700,8,100
1,Cape Town,Lima,9700,18,50
2,London,New Delhi,6600,30,25
3,Cape Town,London,9700,45,200
4,New Delhi,London,6700,45,50
"""


@pytest.fixture(autouse=True)
def packages(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "rules.yaml").write_text(RULES)
    (tmp_path / "packages.csv").write_text(DATA)
    monkeypatch.chdir(tmp_path)
    for name in list(os.environ):
        if name.startswith("WEEVER_"):
            monkeypatch.delenv(name)


def weever(capfd: pytest.CaptureFixture[str], *arguments: str) -> tuple[int, str, str]:
    code = run(arguments)
    captured = capfd.readouterr()
    return code, captured.out, captured.err


def test_text_shows_pairs_side_by_side(capfd: pytest.CaptureFixture[str]) -> None:
    code, out, err = weever(capfd, "check", "rules.yaml", "packages.csv")
    assert (code, err) == (1, "")
    lines = [line for line in out.splitlines() if " s" not in line[-4:]]
    assert out.splitlines()[0] == "rule                       severity   violations   rows involved      time"
    row = next(line for line in out.splitlines() if line.startswith("distance_is_symmetric "))
    assert row.split()[1:4] == ["critical", "1", "2"]
    assert "\n".join(lines[lines.index("") :]) == (
        "\n"
        "distance_is_symmetric  t.destination = s.origin and t.origin = s.destination and t.distance != s.distance\n"
        "  package_code   2             package_code  4\n"
        "    destination  New Delhi  =  origin        New Delhi\n"
        "    origin       London     =  destination   London\n"
        "    distance     6600       ≠  distance      6700\n"
        "\n"
        "bigger_parcel_costs_more  t.distance = s.distance and t.postage > s.postage and t.volume < s.volume\n"
        "  Of two parcels that travel equally far the smaller one must not cost more.\n"
        "  package_code  0        package_code  1\n"
        "    distance    9700  =  distance      9700\n"
        "    postage     100   >  postage       50\n"
        "    volume      8     <  volume        18\n"
        "\n"
        "packages: 5 rows, 3 rules, 2 violated"
    )


@pytest.mark.parametrize(
    ("rules", "code"),
    [(["package_code_is_unique"], 0), (["bigger_parcel_costs_more"], 2), (["distance_is_symmetric"], 1)],
)
def test_rules_can_be_selected_and_their_severity_gives_the_exit_code(
    capfd: pytest.CaptureFixture[str], rules: list[str], code: int
) -> None:
    options = [part for rule in rules for part in ("--rule", rule)]
    found, out, _ = weever(capfd, "check", "rules.yaml", "packages.csv", "--format", "json", *options)
    assert found == code
    assert [rule["name"] for rule in json.loads(out)["rules"]] == rules


@pytest.mark.parametrize("mode", ["list", "count", "first"])
@pytest.mark.parametrize("form", ["text", "json", "csv"])
def test_every_mode_writes_every_format(capfd: pytest.CaptureFixture[str], mode: str, form: str) -> None:
    code, out, err = weever(capfd, "check", "rules.yaml", "packages.csv", "--mode", mode, "--format", form)
    assert (code, err) == (1, "")
    assert ("bigger_parcel_costs_more" in out) == (form != "csv" or mode != "count")


def test_a_limit_lists_fewer_and_says_so(capfd: pytest.CaptureFixture[str]) -> None:
    Path("same.csv").write_text("package_code\n" + "\n".join(["1"] * 30))
    Path("unique.yaml").write_text("table: same\nrules:\n  - {name: unique, unique: [package_code]}\n")
    code, out, _ = weever(capfd, "check", "unique.yaml", "same.csv")
    assert code == 1
    assert out.count("_row") == 40
    assert "unique: 415 more; --limit lists more, --format csv all" in out
    _, out, _ = weever(capfd, "check", "unique.yaml", "same.csv", "--limit", "0")
    assert "_row" not in out
    assert "435" in out


def test_options_can_come_from_the_environment(
    capfd: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("WEEVER_CHECK_FORMAT", "json")
    monkeypatch.setenv("WEEVER_CHECK_MODE", "count")
    code, out, _ = weever(capfd, "check", "rules.yaml", "packages.csv")
    assert code == 1
    assert json.loads(out)["violations"] == []


def test_the_data_can_be_named_by_the_rule_file(capfd: pytest.CaptureFixture[str]) -> None:
    Path("rules.yaml").write_text(RULES.replace("rules:", "source: {kind: csv, path: packages.csv}\nrules:"))
    assert weever(capfd, "check", "rules.yaml", "--mode", "count")[0] == 1


def test_options_of_a_source_that_check_does_not_know_are_refused(capfd: pytest.CaptureFixture[str]) -> None:
    source = "source: {kind: files, format: csv, path: packages.csv, options: {sep: ';', header: 'true'}}\nrules:"
    Path("rules.yaml").write_text(RULES.replace("rules:", source))
    code, _, said = weever(capfd, "check", "rules.yaml")
    assert code == 3
    assert "does not read CSV by the source's options: sep" in said
    assert weever(capfd, "check", "rules.yaml", "packages.csv")[0] == 1


def test_results_go_to_a_file_whole_or_not_at_all(capfd: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    code, out, _ = weever(capfd, "check", "rules.yaml", "packages.csv", "--format", "json", "-o", "out.json")
    assert (code, out) == (1, "")
    assert len(json.loads(Path("out.json").read_text())["violations"]) == 2
    code, _, err = weever(capfd, "check", "rules.yaml", "packages.csv", "--format", "json", "-o", "no/such/out.json")
    assert code == 4
    assert err == (
        "weever: no/such/out.json cannot be written: No such file or directory\n"
        "  hint: check its path, rights and space\n"
    )
    assert sorted(path.name for path in tmp_path.iterdir()) == ["out.json", "packages.csv", "rules.yaml"]


def test_a_full_disk_is_told(capfd: pytest.CaptureFixture[str]) -> None:
    if not Path("/dev/full").exists():
        pytest.skip("no /dev/full here")
    code, _, err = weever(capfd, "check", "rules.yaml", "packages.csv", "--format", "csv", "-o", "/dev/full")
    assert code == 4
    assert err.startswith("weever: /dev/full cannot be written: No space left on device\n")


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["check", "absent.yaml", "packages.csv"],
         "weever: absent.yaml cannot be read: No such file or directory\n  hint: check the path of the rule file\n"),
        (["check", "rules.yaml", "packags.csv"], "weever: there is no file packags.csv\n  hint: did you mean packages.csv?\n"),
        (["check", "rules.yaml"],
         "weever: there is no data to check\n  hint: name it after the rule file, or under `source:` in it\n"),
        (["check", "rules.yaml", "packages.csv", "--rule", "distance_symmetric"],
         "weever: rules.yaml: there is no rule distance_symmetric\n  hint: did you mean distance_is_symmetric?\n"),
        (["check", "rules.yaml", "packages.csv", "--mode", "fast"], "weever: Invalid value for '--mode'"),
        (["check", "rules.yaml", "packages.csv", "--limit", "-1"], "weever: Invalid value for '--limit'"),
        (["check", "packages.csv", "rules.yaml"],
         "weever: packages.csv is data by its name, not rules\n  hint: the rule file is named first, then the data\n"),
        (["check", "rules.yaml", "-"],
         "weever: there is no file -\n  hint: pipes and devices are not read: columns are read more than once;"),
        (["check"], "weever: Missing argument"),
        (["chek"], "weever: no such command: weever chek\n  hint: did you mean check?\n"),
    ],
)  # fmt: skip
def test_what_cannot_run_exits_with_3_and_a_message(
    capfd: pytest.CaptureFixture[str], arguments: list[str], message: str
) -> None:
    code, out, err = weever(capfd, *arguments)
    assert (code, out) == (3, "")
    assert err.startswith(message)
    assert "Traceback" not in err


def test_a_missing_column_is_shown_in_the_rule_file(capfd: pytest.CaptureFixture[str]) -> None:
    Path("rules.yaml").write_text(RULES.replace("t.distance = s.distance", "t.distanz = s.distance"))
    code, _, err = weever(capfd, "check", "rules.yaml", "packages.csv")
    assert code == 3
    assert err == (
        "weever: rules.yaml:10:11, rule bigger_parcel_costs_more: there is no column distanz\n"
        "        deny: t.distanz = s.distance and t.volume < s.volume and t.postage > s.postage\n"
        "              ^^^^^^^^^\n"
        "  hint: did you mean distance?\n"
    )


def test_a_key_that_names_two_rows_is_told(capfd: pytest.CaptureFixture[str]) -> None:
    Path("packages.csv").write_text(DATA.replace("\n4,", "\n2,"))
    code, _, err = weever(capfd, "check", "rules.yaml", "packages.csv")
    assert code == 3
    assert err == (
        "weever: the key (package_code) is not unique: 1 value stands in more than one row, first in rows 3 and 5\n"
        "  hint: mend the key, or remove `key:` to number the rows instead\n"
    )


def test_our_own_mistakes_are_one_line_unless_asked(
    capfd: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    import weever_stream.check

    def broken(*_: object, **__: object) -> None:
        raise RuntimeError("value 42 of a row")

    monkeypatch.setattr(weever_stream.check, "check", broken)
    code, _, err = weever(capfd, "check", "rules.yaml", "packages.csv")
    assert code == 3
    assert err == (
        "weever: unexpected RuntimeError in weever; please report it with the command you ran "
        "(WEEVER_DEBUG=1 shows the details)\n"
    )
    monkeypatch.setenv("WEEVER_DEBUG", "1")
    code, _, shown = weever(capfd, "check", "rules.yaml", "packages.csv")
    assert code == 3, "what is shown does not change the exit code"
    assert "RuntimeError: value 42 of a row" in shown
    assert shown.endswith(err)


def test_an_interrupt_exits_with_130(capfd: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> None:
    import weever_stream.check

    def interrupted(*_: object, **__: object) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr(weever_stream.check, "check", interrupted)
    assert weever(capfd, "check", "rules.yaml", "packages.csv")[0] == 130


def test_values_cannot_paint_the_terminal(capfd: pytest.CaptureFixture[str]) -> None:
    Path("rows.csv").write_text("k,v\n1,[red]a\x1b[31m\n1," + "x" * 5000 + "\n")
    Path("rules.yaml").write_text("table: rows\nrules:\n  - {name: k_determines_v, fd: k -> v}\n")
    _, out, _ = weever(capfd, "check", "rules.yaml", "rows.csv")
    assert "\x1b" not in out
    assert r"[red]a\x1b[31m" in out
    assert "x" * 5000 in out, "this is no terminal: nothing is cut"


def test_explain_tells_families_sides_and_routing(capfd: pytest.CaptureFixture[str]) -> None:
    code, out, _ = weever(capfd, "explain", "rules.yaml")
    assert code == 0
    assert "two shards a row, by hash of destination, origin as t and of origin, destination as s" in out
    assert "selectivity: not known without data" in out
    code, out, _ = weever(capfd, "explain", "rules.yaml", "packages.csv")
    assert "selectivity, from 5 of 5 rows:" in out


@pytest.mark.parametrize("verb", ["check", "explain"])
def test_a_column_that_no_rule_reads_is_hinted_at(verb: str, capfd: pytest.CaptureFixture[str]) -> None:
    Path("r.yaml").write_text("table: x\nrules:\n  - {name: r, fd: a -> idd}\n")
    Path("d.csv").write_text("id,a,b,c\n1,2,3,4\n")
    assert "did you mean id?" in weever(capfd, verb, "r.yaml", "d.csv")[2]


def test_explain_does_not_refuse_what_only_a_guessed_type_excludes(capfd: pytest.CaptureFixture[str]) -> None:
    deny = "t.a = s.b and t.a > 9007199254740992 and s.b <= 9007199254740992 and t.c < 1e300"
    Path("close.yaml").write_text(f"table: close\nrules:\n  - {{name: r, deny: {deny}}}\n")
    code, out, _ = weever(capfd, "explain", "close.yaml")
    assert (code, "hash index on a" in out) == (0, True)
    Path("close.csv").write_text("a,b,c\n1,2,\n")
    code, _, err = weever(capfd, "explain", "close.yaml", "close.csv")
    assert (code, "can never be violated" in err) == (3, True)


def test_a_column_without_values_is_valid_as_check_finds_it(capfd: pytest.CaptureFixture[str]) -> None:
    Path("empty.yaml").write_text("table: x\nrules:\n  - {name: n, deny: t.c > 5}\n  - {name: s, deny: t.c > t.s}\n")
    Path("empty.csv").write_text("c,s\n,x\n")
    for command in (
        "check empty.yaml empty.csv",
        "validate empty.yaml --against empty.csv",
        "explain empty.yaml empty.csv",
    ):
        code, _, err = weever(capfd, *command.split())
        assert code == 0, err


def shell(command: str) -> subprocess.CompletedProcess[str]:
    root = str(Path(__file__).parents[2])
    environment = {**os.environ, "PYTHONPATH": root, "WEEVER": f"{sys.executable} -m weever_stream.cli"}
    return subprocess.run(["bash", "-c", command], capture_output=True, text=True, env=environment, timeout=120)


def test_a_reader_that_leaves_early_is_no_traceback() -> None:
    Path("many.csv").write_text("package_code\n" + "1\n" * 2000)
    Path("unique.yaml").write_text("table: same\nrules:\n  - {name: unique, unique: [package_code]}\n")
    done = shell("set -o pipefail; $WEEVER check unique.yaml many.csv --format csv | head -1")
    assert done.stdout.startswith("rule,severity,id")
    assert done.stderr == ""
    assert done.returncode == 4


def test_help_and_version_load_nothing_heavy() -> None:
    probe = (
        "import sys; from weever_stream.cli import run; code = run({arguments!r}); "
        "heavy = {{'numba', 'pyarrow', 'pandas', 'pyspark', 'numpy'}} & set(sys.modules); assert not heavy, heavy; sys.exit(code)"
    )
    for arguments in (["--help"], ["--version"], []):
        command = probe.format(arguments=arguments)
        done = shell(f'{sys.executable} -c "{command}"')
        assert done.returncode == 0, done.stderr
    assert "check" in shell("$WEEVER --help").stdout


def test_long_names_and_rules_are_never_cut(
    capfd: pytest.CaptureFixture[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    columns = [f"a_rather_long_name_of_a_column_{number}" for number in range(12)]
    name = "one_row_for_" + "_and_".join(columns[:4])
    (tmp_path / "long.yaml").write_text(f"table: t\nrules:\n  - {{name: {name}, unique: [{', '.join(columns)}]}}\n")
    (tmp_path / "long.csv").write_text(",".join(columns) + "\n" + ",".join("1" * 12) + "\n" + ",".join("1" * 12) + "\n")
    monkeypatch.setenv("COLUMNS", "40")
    for arguments in (["check", "long.yaml", "long.csv"], ["validate", "long.yaml"]):
        monkeypatch.chdir(tmp_path)
        _, out, _ = weever(capfd, *arguments)
        assert name in out
        assert " and ".join(f"t.{column} = s.{column}" for column in sorted(columns)) in out
        assert "…" not in out
