"""What commands read and write: any kind of table, and never over their own input."""

from __future__ import annotations

import gzip
import zipfile

import numpy as np
import pandas as pd
import pyarrow.parquet as pq
import pytest

from sidelight.cli import main
from sidelight.cli.looking import look_at, write_prepared
from sidelight.cli.tables import read_table
from sidelight.errors import SourceError

N = 300


@pytest.fixture
def frame():
    rng = np.random.default_rng(0)
    return pd.DataFrame(
        {
            "age": rng.normal(50, 9, N).round(1),
            "city": rng.choice(["Köln", "Bonn"], N),
            "need": rng.normal(size=N).round(3),
            "arm": rng.choice(["u", "v"], N),
            "reward": rng.normal(size=N).round(3),
        }
    )


def said(words, capsys, code=1):
    """What the command says on standard error before it ends with ``code``."""
    with pytest.raises(SystemExit) as stop:
        main([str(word) for word in words])
    assert stop.value.code == code
    return capsys.readouterr().err


def test_a_report_never_writes_over_the_table_that_it_replays(frame, tmp_path, capsys):
    """Its results go to a file of the page's name that ends in .parquet, which may be the table itself."""
    table, page = tmp_path / "trial.parquet", tmp_path / "trial.html"
    frame.to_parquet(table)
    before = table.read_bytes()
    for out in (page, table):
        said(["report", "--trial", table, "--hidden", "need", "-o", out], capsys)
    told = said(["report", "--trial", tmp_path / "tri*.parquet", "--hidden", "need", "-o", page], capsys)
    assert "would destroy it" in told
    assert "The results of" in told
    assert table.read_bytes() == before
    assert not page.exists()


def test_no_command_writes_over_what_it_reads(frame, tmp_path, capsys):
    log, rows, schema = tmp_path / "log.csv", tmp_path / "rows.csv", tmp_path / "schema.toml"
    frame.to_csv(log, index=False)
    frame.to_csv(rows, index=False)
    schema.write_text('features = ["age"]\nrecorded = ["age"]\n', encoding="utf-8")
    columns = ["--recorded", "age", "--hidden", "need"]
    pattern = tmp_path / "*.csv"
    study = tmp_path / "study.toml"
    study.write_text("rounds = 10\n", encoding="utf-8")
    for words in (
        ["judge", log, *columns, "--complete", rows, "--html", rows],
        ["judge", log, *columns, "--answers", rows, "--html", rows],
        ["judge", log, "--schema", schema, "--html", schema],
        ["diagnose", log, "--schema", schema, "--html", schema],
        ["summarize", log, "--schema", schema, "-o", schema],
        ["summarize", pattern, *columns, "-o", rows],
        ["summarize", tmp_path, *columns, "-o", rows],
        ["simulate", study, "-o", study],
    ):
        assert "would destroy it" in said(words, capsys)
    # a summary beside the log is no part of it, and may be written again
    for _ in range(2):
        said(["summarize", tmp_path, *columns, "-o", tmp_path / "log.summary"], capsys, code=0)


def test_a_spreadsheet_is_no_summary(tmp_path, capsys):
    path = tmp_path / "book.xlsx"
    with zipfile.ZipFile(path, "w") as archive:
        archive.writestr("[Content_Types].xml", "<x/>")
    for words in (
        ["judge", path, "--recorded", "age"],
        ["diagnose", path, "--recorded", "age"],
        ["try", path, "--yes"],
    ):
        assert "Save a spreadsheet as CSV" in said(words, capsys)


def test_tables_of_any_kind_are_looked_at_and_replayed(frame, tmp_path):
    paths = [
        tmp_path / name for name in ("a.csv", "b.csv", "c.csv.gz", "parquet-without-ending", "e.feather", "[f].csv")
    ]
    frame.to_csv(paths[0], index=False)
    frame.to_csv(paths[1], index=False, sep=";", encoding="utf-8-sig")
    with gzip.open(paths[2], "wt", encoding="utf-8") as stream:
        frame.to_csv(stream, index=False)
    frame.to_parquet(paths[3])
    frame.to_feather(paths[4])
    frame.to_csv(paths[5], index=False)
    for path in paths:
        look = look_at([str(path)])
        assert look.columns == tuple(frame.columns)
        assert [profile.kind for profile in look.profiles] == ["number", "text", "number", "text", "number"]
        table = read_table(str(path))
        assert table.column_names == list(frame.columns)
        assert table["age"].to_pylist() == frame["age"].tolist()
        assert table["city"].to_pylist() == frame["city"].tolist()
    frame.to_csv(paths[0], index=False, encoding="latin1")
    with pytest.raises(SourceError, match="not UTF-8"):
        read_table(str(paths[0]))


def test_blanks_around_names_and_texts_do_not_count(frame, tmp_path):
    path = tmp_path / "log.csv"
    frame["arm"] = " " + frame["arm"]
    frame.rename(columns={"arm": " arm ", "age": " age"}).to_csv(path, index=False)
    look = look_at([str(path)])
    assert look.columns == tuple(frame.columns)
    assert sorted({profile.name: profile for profile in look.profiles}["arm"].levels) == ["u", "v"]
    table = read_table(str(path))
    assert table.column_names == list(frame.columns)
    assert set(table["arm"].to_pylist()) == {"u", "v"}


def test_none_is_a_text_and_a_gap_among_numbers(frame, tmp_path):
    frame["arm"] = np.where(np.arange(N) % 3 == 0, "None", frame["arm"])
    frame["age"] = np.where(np.arange(N) % 10 == 0, "None", frame["age"].astype(str))
    path = tmp_path / "log.csv"
    frame.to_csv(path, index=False)
    profiles = {profile.name: profile for profile in look_at([str(path)]).profiles}
    assert (profiles["age"].kind, profiles["age"].missing) == ("number", N / 10)
    assert sorted(profiles["arm"].levels) == ["None", "u", "v"]
    table = read_table(str(path))
    assert (str(table["age"].type), table["age"].null_count) == ("double", N / 10)
    assert set(table["arm"].to_pylist()) == {"None", "u", "v"}


def test_parquet_with_decimal_commas_is_prepared_whole_or_not_at_all(frame, tmp_path):
    frame["age"] = [f"{value:.1f}".replace(".", ",") for value in frame["age"]]
    frame["when"] = pd.date_range("2024-01-01", periods=N).strftime("%d.%m.%Y")
    source, target = tmp_path / "a.parquet", tmp_path / "a.prepared.parquet"
    frame.to_parquet(source)
    look = look_at([str(source)])
    assert {profile.name for profile in look.repairs} == {"age", "when"}
    assert write_prepared(look, target).rows == N
    prepared = pq.read_table(target)
    assert prepared["age"].to_pylist() == [float(text.replace(",", ".")) for text in frame["age"]]
    assert prepared["reward"].to_pylist() == frame["reward"].tolist()

    first, second, left = tmp_path / "a.csv", tmp_path / "b.csv", tmp_path / "csv.prepared.parquet"
    frame.to_csv(first, index=False, sep=";")
    second.write_text(first.read_text(encoding="utf-8") + "1,5;u;2\n", encoding="utf-8")
    with pytest.raises(SourceError, match="cannot read"):
        write_prepared(look_at([str(first), str(second)]), left)
    assert not left.exists()
    assert not list(tmp_path.glob("*.part")) + list(tmp_path.glob(".*.part"))


def test_a_folder_is_no_place_to_write_to(frame, tmp_path, capsys):
    """Said before anything long starts, by every command that writes a file."""
    log, folder, summary = tmp_path / "log.csv", tmp_path / "out", tmp_path / "log.summary"
    frame.to_csv(log, index=False)
    folder.mkdir()
    main_quietly(["summarize", log, "--recorded", "age", "--hidden", "need", "-o", summary], capsys)
    for words in (
        ["summarize", log, "--recorded", "age", "-o", folder],
        ["judge", log, "--recorded", "age", "--html", folder],
        ["diagnose", summary, "--html", folder],
        ["try", log, "--yes", "--out", folder],
        ["init", "--summary", summary, "--mode", "shadow", "--out", folder, "--force"],
    ):
        assert "is a folder: name a file in it" in said(words, capsys)
    assert not list(folder.iterdir())


def main_quietly(words, capsys):
    """Run a command that is to end well."""
    with pytest.raises(SystemExit) as stop:
        main([str(word) for word in words])
    assert stop.value.code == 0
    capsys.readouterr()
