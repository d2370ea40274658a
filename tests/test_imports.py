"""What is loaded when. Catches a heavy import that creeps into the light paths."""

from __future__ import annotations

import subprocess
import sys

import pytest

HEAVY = ("pyspark", "pandas", "polars", "pyarrow", "numba", "numpy", "rich", "typer")


def loaded_by(code: str) -> set[str]:
    """The heavy packages that are loaded after some code ran in a fresh interpreter."""
    program = f"{code}\nimport sys\nprint(*[name for name in {HEAVY!r} if name in sys.modules])"
    run = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    return set(run.stdout.split())


def test_importing_the_package_loads_nothing_heavy() -> None:
    assert loaded_by("import weever_stream") == set()


def test_reading_rules_needs_no_arrow() -> None:
    code = "from weever_stream.rules import parse_rule; parse_rule('t.a = s.a and t.b != s.b')"
    assert loaded_by(code).isdisjoint({"pyarrow", "numba", "numpy", "pandas", "pyspark"})


@pytest.mark.parametrize("code", ["from weever_stream import Detector", "from weever_stream.check import check"])
def test_the_engine_loads_neither_spark_nor_pandas(code: str) -> None:
    assert loaded_by(code).isdisjoint({"pyspark", "pandas", "polars", "rich", "typer"})


def test_counting_numbers_needs_no_compiled_code(tmp_path_factory: pytest.TempPathFactory) -> None:
    file = tmp_path_factory.mktemp("data") / "rows.csv"
    file.write_text("a,b\n1,2\n1,3\n")
    code = (
        "from weever_stream import parse_rule\n"
        "from weever_stream.check import check\n"
        f"report = check([parse_rule('t.a = s.a and t.b != s.b')], {str(file)!r}, mode='count')\n"
        "assert report.results[0].violations == 1"
    )
    assert loaded_by(code).isdisjoint({"pyspark", "pandas", "polars", "numba"})


def test_every_public_name_can_be_had() -> None:
    import weever_stream

    for name in weever_stream.__all__:
        assert getattr(weever_stream, name) is not None
    assert dir(weever_stream) == sorted(weever_stream.__all__)
    with pytest.raises(AttributeError, match="nothing_like_it"):
        weever_stream.nothing_like_it  # noqa: B018
