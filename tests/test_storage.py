"""Data is opened by path or URI, wherever it is: the same rows from a disk and from S3, and no secret in an error.

Catches: a scan of a Delta table that runs through Python, whose threads abort the process as the interpreter ends; a
store that only some commands read; a URI that is taken for a local path; credentials of a URI in a message.
"""

from __future__ import annotations

import ast
import json
import re
import time
from collections.abc import Iterator
from pathlib import Path

import pyarrow as pa
import pyarrow.csv as arrow_csv
import pyarrow.feather as feather
import pyarrow.parquet as pq
import pytest
from pyarrow import fs

from tests.stream.servers.s3 import ObjectStore
from weever_stream.check import check
from weever_stream.cli import run
from weever_stream.errors import DataError
from weever_stream.rules import fd, parse_rule
from weever_stream.sinks.reading import read_sink
from weever_stream.storage import locate, open_delta, scan_delta

ROWS = pa.table({"zip": ["01", "01", "02", None], "city": ["a", "b", "c", ""], "n": [1, 2, 3, 2**63 - 1]})
RULE = fd("zip", "city", name="zip_determines_city")
RULES = "table: t\nrules:\n  - {name: zip_determines_city, fd: zip -> city}\n"


def test_a_delta_table_is_scanned_by_native_code_alone(tmp_path: Path) -> None:
    from deltalake import write_deltalake

    partitioned = pa.table({"k": [1, 2, 3], "part": ["a b:c/d%", "é=ü?#&+", None]})
    write_deltalake(str(tmp_path / "a b"), partitioned, partition_by=["part"])
    place = locate(tmp_path / "a b")
    rows = scan_delta(open_delta(place), place)
    for files in (rows.filesystem, *(fragment.filesystem for fragment in rows.get_fragments())):
        assert isinstance(files, fs.SubTreeFileSystem)
        assert isinstance(files.base_fs, fs.LocalFileSystem)
    assert rows.to_table().sort_by("k").to_pydict() == partitioned.to_pydict()


def test_no_other_code_scans_a_delta_table() -> None:
    """`to_pyarrow_table` and `to_pyarrow_dataset` go through Python unless they are given a file system."""
    root = Path(__file__).parents[1]
    for path in [*(root / "weever_stream").rglob("*.py"), *(root / "tests").rglob("*.py")]:
        called = {node.attr for node in ast.walk(ast.parse(path.read_text())) if isinstance(node, ast.Attribute)}
        scans = called & {"to_pyarrow_table", "to_pyarrow_dataset"}
        assert not scans or path == root / "weever_stream" / "storage.py", path


def test_a_google_store_that_does_not_answer_is_given_up_soon(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("weever_stream.storage._GCS_PATIENCE", 1)
    begun = time.monotonic()
    with pytest.raises(DataError, match=r"^gs://anonymous@b/x.csv cannot be read: UNAVAILABLE from the store"):
        locate("gs://anonymous@b/x.csv?scheme=http&endpoint_override=127.0.0.1:9").info()
    assert time.monotonic() - begun < 30


@pytest.mark.parametrize(
    "command",
    [
        "check s3://b/rules.yaml rows.csv",
        "check rules.yaml rows.csv -o s3://b/rules.yaml",
        "discover rows.csv --report s3://b/rules.yaml",
        "violations s3://b/rules.yaml",
    ],
)
def test_rule_files_and_outputs_are_local_files(
    command: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    Path("rules.yaml").write_text(RULES)
    arrow_csv.write_csv(ROWS, "rows.csv")
    assert run(command.split()) in (3, 4)
    assert re.match(
        r"weever: s3://b/rules.yaml cannot be (read|written): it is no local file\n  hint: rule files and outputs",
        capfd.readouterr().err,
    )


def test_a_file_uri_is_a_local_path(tmp_path: Path) -> None:
    path = tmp_path / "a b%20c.parquet"
    pq.write_table(ROWS, path)
    assert check(RULE, path.as_uri()).results[0].violations == 1
    assert check(RULE, path.as_uri().replace("file://", "file:")).results[0].violations == 1


@pytest.mark.parametrize("uri", ["http://host/x.csv", "ftp://user:secret@host/x.csv?key=secret", "dbfs:/x.csv"])
def test_a_scheme_that_is_not_supported_is_named(uri: str) -> None:
    with pytest.raises(DataError) as caught:
        check(RULE, uri)
    shown = caught.value.render()
    assert f"the URI scheme {uri.partition(':')[0]} is not supported" in shown
    assert "hint: supported are file, s3, " in shown
    assert "secret" not in shown


@pytest.mark.parametrize("uri", ["s3://key:secret@bucket/x?no_such_option=secret", "s3://[key:secret@bucket/x"])
def test_a_uri_that_cannot_be_opened_is_an_error_without_secrets(uri: str) -> None:
    with pytest.raises(DataError) as caught:
        check(RULE, uri)
    assert "secret" not in caught.value.render()
    assert caught.value.hint


@pytest.fixture(scope="module")
def s3() -> Iterator[ObjectStore]:
    with ObjectStore() as store, pytest.MonkeyPatch.context() as environment:
        environment.setenv("AWS_ENDPOINT_URL", store.endpoint)
        environment.setenv("AWS_ACCESS_KEY_ID", store.access_key)
        environment.setenv("AWS_SECRET_ACCESS_KEY", store.secret_key)
        environment.setenv("AWS_REGION", store.region)
        _fill(store)
        yield store


def _fill(store: ObjectStore) -> None:
    from deltalake import write_deltalake

    files, bucket = store.filesystem(), store.bucket
    pq.write_table(ROWS, f"{bucket}/x/rows.parquet", filesystem=files)
    pq.write_table(ROWS.slice(0, 2), f"{bucket}/parts/state=a%3Ab/part-0.parquet", filesystem=files)
    pq.write_table(ROWS.slice(2), f"{bucket}/parts/state=c/part-1.parquet", filesystem=files)
    with files.open_output_stream(f"{bucket}/parts/_SUCCESS") as out:
        out.write(b"")
    with files.open_output_stream(f"{bucket}/x/a b%20#c.csv") as out:
        arrow_csv.write_csv(ROWS, out)
    with files.open_output_stream(f"{bucket}/x/rows.csv.gz", compression="gzip") as out:
        arrow_csv.write_csv(ROWS, out)
    with files.open_output_stream(f"{bucket}/x/rows.jsonl") as out:
        out.write("".join(json.dumps(row) + "\n" for row in ROWS.to_pylist()).encode())
    with files.open_output_stream(f"{bucket}/x/rows.feather") as out:
        feather.write_feather(ROWS, out)
    write_deltalake(f"s3://{bucket}/delta", ROWS, storage_options={"allow_http": "true"})


@pytest.mark.slow
@pytest.mark.parametrize(
    "path",
    ["x/rows.parquet", "x/a b%20#c.csv", "x/rows.csv.gz", "x/rows.jsonl", "x/rows.feather", "delta", "parts", "parts/",
     "parts/*/*.parquet", "parts/state=*", "parts/**/part-?.parquet".replace("?", "[01]")],
)  # fmt: skip
@pytest.mark.parametrize("scheme", ["s3", "s3a"])
def test_every_format_is_read_from_s3(s3: ObjectStore, path: str, scheme: str) -> None:
    report = check(RULE, f"{scheme}://{s3.bucket}/{path}")
    assert (report.rows, report.results[0].violations) == (4, 1)


@pytest.mark.slow
def test_columns_named_by_folders_are_read_from_s3(s3: ObjectStore) -> None:
    report = check(parse_rule("t.state = 'a:b'", name="of_a_folder"), f"s3://{s3.bucket}/parts")
    assert report.results[0].violations == 2


@pytest.mark.slow
@pytest.mark.parametrize("path", ["x/rows.parquet", "x/rows.csv.gz", "delta"])
def test_all_commands_read_s3(
    s3: ObjectStore, path: str, tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    Path("rules.yaml").write_text(RULES)
    uri = f"s3://{s3.bucket}/{path}"
    assert run(["check", "rules.yaml", uri]) == 1
    assert run(["explain", "rules.yaml", uri]) == 0
    assert "from 4 of 4 rows" in capsys.readouterr().out
    assert run(["validate", "rules.yaml", "--against", uri]) == 0
    assert run(["discover", uri, "-o", "found.yaml"]) == 0
    assert Path("found.yaml").read_text().startswith(f"table: {path.rpartition('/')[2].partition('.')[0]}")
    Path("sourced.yaml").write_text(
        RULES + f"source: {{kind: {'delta' if path == 'delta' else 'files'}, path: '{uri}'}}\n"
    )
    assert run(["check", "sourced.yaml"]) == 1


@pytest.mark.slow
@pytest.mark.parametrize("path", ["x/rows.parquet", "delta"])
def test_credentials_in_a_uri_are_used_and_never_shown(
    s3: ObjectStore, path: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in ("AWS_ENDPOINT_URL", "AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY", "AWS_REGION"):
        monkeypatch.delenv(name)
    host = s3.endpoint.removeprefix("http://")
    query = f"endpoint_override={host}&scheme=http&region={s3.region}"
    uri = f"s3://{s3.access_key}:{s3.secret_key}@{s3.bucket}/{{}}?{query}"
    assert check(RULE, uri.format(path)).results[0].violations == 1
    for missing in ("x/none.parquet", "none/*.csv", "x/rows.xlsx"):
        with pytest.raises(DataError) as caught:
            check(RULE, uri.format(missing))
        assert s3.secret_key not in caught.value.render()
        assert f"s3://{s3.bucket}/{missing}" in caught.value.render()


@pytest.mark.slow
def test_a_store_that_is_not_there_is_an_error(s3: ObjectStore, monkeypatch: pytest.MonkeyPatch) -> None:
    for uri in (f"s3://{s3.bucket}/none.csv", "s3://no-such-bucket/x.csv"):
        with pytest.raises(DataError, match=f"there is no file {uri}"):
            check(RULE, uri)
    with pytest.raises(DataError, match="nothing has been written to s3://weever/none yet"):
        read_sink(f"s3://{s3.bucket}/none")
