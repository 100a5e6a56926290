"""``sidelight try``: what is seen in a file, what is proposed, what is asked, and what comes out of it."""

from __future__ import annotations

import datetime as dt
import json
import shlex
import tomllib
from dataclasses import replace

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
import typer
from typer.testing import CliRunner

import sidelight as sl
from sidelight.cli import main, trying
from sidelight.cli.looking import look_at, write_prepared
from sidelight.cli.proposing import Said, propose, unclear
from sidelight.errors import SchemaError, SidelightError, SourceError
from sidelight.logs.schema.schema_file import read_schema_file

ROWS = 600


def shop(path, *, encoding="utf-8", delimiter=";", comma=True, rows=ROWS, dates="%d.%m.%Y"):
    """A shop's export: ids, mail addresses, dates, decimal commas, a remark, an offer, revenue with a currency sign."""
    rng = np.random.default_rng(0)
    start = dt.datetime(2024, 1, 1)

    def written(value):
        text = f"{value:,.2f}"
        return text.translate(str.maketrans(",.", ".,")) if comma else text.replace(",", "")

    with open(path, "w", encoding=encoding, newline="") as stream:
        names = [
            "order id",
            "customer",
            "order date",
            "age",
            "basket",
            "channel",
            "remark",
            "offer",
            "revenue",
            "country",
        ]
        stream.write(delimiter.join(names) + "\n")
        for i in range(rows):
            basket, age = rng.gamma(2, 400), int(rng.integers(18, 80))
            offer = ["none", "10 % off"][int(rng.random() < 1 / (1 + np.exp(-(basket - 800) / 300)))]
            revenue = 20 + 0.05 * basket + 5 * (offer != "none") * (age < 40) + rng.normal(0, 8)
            cells = [
                f"B{1000 + i}", f"k{i // 2}@mail.de", (start + dt.timedelta(days=i)).strftime(dates), str(age),
                written(basket), ["web", "Straße"][i % 2], "" if i % 3 else f"remark {i}", offer,
                written(revenue) + " €", "DE",
            ]  # fmt: skip
            stream.write(delimiter.join(cells) + "\n")
    return path


@pytest.fixture
def run():
    app = typer.Typer(pretty_exceptions_enable=False)
    app.command()(trying.try_)

    def call(*arguments, ask=None):
        result = CliRunner().invoke(app, [str(argument) for argument in arguments], input=ask)
        if result.exception is not None and not isinstance(result.exception, SystemExit | SidelightError):
            raise result.exception
        return result

    return call


def roles(proposal):
    return {column.name: column.role for column in proposal.columns}


# -------------------------------------------------------------------------------------------------- looking


def test_what_is_seen_in_a_shops_export(tmp_path):
    look = look_at([str(shop(tmp_path / "shop.csv", encoding="cp1252"))])
    assert (look.delimiter, look.encoding, look.rows, look.whole) == (";", "cp1252", ROWS, True)
    seen = {profile.name: profile for profile in look.profiles}
    kinds = {name: profile.kind for name, profile in seen.items()}
    assert kinds == {
        "order id": "text", "customer": "text", "order date": "date", "age": "integer", "basket": "number",
        "channel": "text", "remark": "text", "offer": "text", "revenue": "number", "country": "text",
    }  # fmt: skip
    assert (seen["basket"].repair, seen["revenue"].repair) == ("comma", "comma")
    assert (seen["order date"].repair, seen["order date"].span) == ("%d.%m.%Y", ROWS - 1)
    assert seen["remark"].missing == ROWS - ROWS // 3
    assert seen["channel"].levels == ("web", "Straße")


@pytest.mark.parametrize(
    ("values", "kind", "repair"),
    [
        (["1", "2.5", "-3e4", "NA"], "number", ""),
        (["1", "2", ""], "integer", ""),
        (["1,5", "2", "1.234,75"], "number", "comma"),
        (["1,234", "12,345,678.5", "7"], "number", "thousands"),
        (["$5.10", "$7", "3 %"], "number", "money"),
        (["12,50 €", "1.000,00 €", "7 €"], "number", "comma"),
        (["true", "False", "TRUE"], "boolean", ""),
        (["2024-02-29", "2023-01-01"], "date", ""),
        (["2024-02-29T12:30:00", "2023-01-01T00:00:00"], "date", ""),
        (["13/02/2024", "01/02/2024"], "date", "%d/%m/%Y"),
        (["02/13/2024", "01/02/2024"], "date", "%m/%d/%Y"),
        (["01/02/2024", "03/04/2024"], "text", ""),  # day and month cannot be told apart
        (["a", "1", "2"], "text", ""),
        (["NA", "", "null"], "empty", ""),
    ],
)
def test_kinds_of_values(tmp_path, values, kind, repair):
    path = tmp_path / "one.csv"
    path.write_text("v\tw\n" + "".join(f"{value}\t1\n" for value in values), encoding="utf-8")
    profile = look_at([str(path)]).profiles[0]
    assert (profile.kind, profile.repair) == (kind, repair)


def _written(path, columns, delimiter=";"):
    """A file of texts: name → values."""
    rows = zip(*columns.values(), strict=True)
    lines = [delimiter.join(columns), *(delimiter.join(row) for row in rows)]
    path.write_text("\n".join(lines) + "\n", encoding="utf-8")
    return path


@pytest.mark.parametrize(
    ("delimiter", "columns", "first"),
    [
        # three decimals after a comma: a thousand times too large if the comma were a separator
        (";", {"v": ["1,234", "12,500"], "w": ["7,5", "8,5"]}, 1.234),
        (";", {"v": ["1,234", "12,500"], "w": ["2", "3"]}, 1.234),
        ("\t", {"v": ["1,234", "0,512"], "w": ["2", "3"]}, 1.234),
        ("\t", {"v": ["1,234", "12,500"], "w": ["2.5", "3"]}, 1234.0),
        (";", {"v": ["1,234", "12,500"], "w": ["2.5", "3"]}, 1234.0),
        (";", {"v": ["1,234", "999"], "w": ["2", "3"]}, 1234.0),
        # and thousands that are separated by dots, where another column has decimal commas
        (";", {"v": ["1.234", "12.500"], "w": ["7,5", "8,5"]}, 1234.0),
        (";", {"v": ["1.234", "12.500"], "w": ["7", "8"]}, 1.234),
        (";", {"v": ["1.234", "0.500"], "w": ["7,5", "8,5"]}, 1.234),
    ],
)
def test_commas_and_dots_are_read_as_in_the_rest_of_the_file(tmp_path, delimiter, columns, first):
    look = look_at([str(_written(tmp_path / "log.csv", columns, delimiter))])
    write_prepared(look, tmp_path / "copy.parquet")
    assert float(pq.read_table(tmp_path / "copy.parquet")["v"][0].as_py()) == first


def test_the_copy_keeps_labels_as_they_are(tmp_path):
    """Arms and categories that are whole numbers do not become 1.0, and a code keeps its zeros."""
    n = 3 * ROWS
    columns = {
        "arm": [str(1 + i % 2) for i in range(n)],
        "zip": [f"{i % 3:05d}" for i in range(n)],
        "visits": [str(i % 7) for i in range(n)],
        "reward": [f"{i % 11},5" for i in range(n)],
    }
    look = look_at([str(_written(tmp_path / "log.csv", columns))])
    write_prepared(look, tmp_path / "copy.parquet")
    table = pq.read_table(tmp_path / "copy.parquet")
    assert set(table["arm"].to_pylist()) == {1, 2}
    assert pa.types.is_integer(table["arm"].type)
    assert set(table["zip"].to_pylist()) == {"00000", "00001", "00002"}
    columns["visits"][-1] = "2.5"
    look = look_at([str(_written(tmp_path / "log.csv", columns))])
    whole = [replace(found, kind="integer") if found.name == "visits" else found for found in look.profiles]
    # as if the fraction came after the rows that are looked at
    write_prepared(replace(look, profiles=tuple(whole)), tmp_path / "copy.parquet")
    assert pq.read_table(tmp_path / "copy.parquet")["visits"].to_pylist()[-2:] == [float(columns["visits"][-2]), 2.5]


def test_a_hidden_category_of_numbers_is_found_in_the_copy(run, tmp_path):
    rng = np.random.default_rng(3)
    zone = rng.integers(1, 5, 2_000)
    x = rng.normal(2, 0.5, 2_000)
    arm = np.where(rng.random(2_000) < 0.2 + 0.15 * zone, 1, 2)
    reward = x * (arm == 1) + 0.3 * zone + rng.normal(0, 0.3, 2_000)
    columns = {"zone": zone, "x": x.round(2), "arm": arm, "reward": reward.round(2)}
    texts = {name: [str(value) for value in values] for name, values in columns.items()}
    commas = {name: [text.replace(".", ",") for text in values] for name, values in texts.items()}
    said = ("--categories", "zone", "--hidden", "zone", "--json", "-o", tmp_path / "s.toml")
    points = json.loads(run(_written(tmp_path / "points.csv", texts), *said).stdout)
    copied = json.loads(run(_written(tmp_path / "commas.csv", commas), *said).stdout)
    assert points["diagnosis"]["worth"] == copied["diagnosis"]["worth"]
    assert points["diagnosis"]["worth"]["known"]


def test_the_page_says_what_was_said_here(run, tmp_path, monkeypatch, capsys):
    """A file that has the hidden columns: the next step values policies with them, as this command did."""
    rng = np.random.default_rng(4)
    need, age = rng.standard_normal((2, 3_000))
    arm = (rng.random(3_000) < 1 / (1 + np.exp(-0.8 * need))).astype(int)
    reward = 1.5 * need + 0.2 * age * arm + 0.1 * rng.standard_normal(3_000)
    columns = {"age": age, "need": need, "arm": arm, "reward": reward}
    _written(tmp_path / "log.csv", {name: [str(value) for value in values] for name, values in columns.items()}, ",")
    monkeypatch.chdir(tmp_path)
    told = json.loads(run("log.csv", "--hidden", "need", "--json").stdout)
    (page,) = (step for step in told["next"] if step.startswith("A page"))
    command = shlex.split(page.split("sidelight ", 1)[1])
    assert command[:4] == ["judge", "log.csv", "--schema", "schema.toml"]
    with pytest.raises(SystemExit):
        main([*command, "--json"])
    assert json.loads(capsys.readouterr().out)["sentence"] == told["verdict"]["sentence"]
    assert "complete rows" in told["verdict"]["sentence"] or "conditional" in told["verdict"]["sentence"]


def test_values_that_the_copy_lacks_are_counted_and_shown(run, tmp_path):
    """Every date is looked at, and what comes after the rows that are looked at is not lost without a word."""
    n = 3_000
    day = [dt.date(2024, 1, 1) + dt.timedelta(days=i % 300) for i in range(n)]
    columns = {
        "arm": [str(i % 2) for i in range(n)],
        "when": [f"{d:%d/%m/%Y}" if i % 3 == 0 else f"{d:%Y-%m-%d}" for i, d in enumerate(day)],
        "price": [("$" if i % 2 else "€") + f"{i % 13}.5" for i in range(n)],
        "share": [f"{i % 9 + 1}%" if i % 2 else "0.07" for i in range(n)],
        "reward": ["?" if i == 7 else f"USD {i % 11}.5" for i in range(n)],
    }
    path = _written(tmp_path / "log.csv", columns, ",")
    proposal = propose(look_at([str(path)]), Said())
    assert {column.name: column.role for column in proposal.columns}["when"] == "left out"
    told = json.loads(run(path, "--json", "-o", tmp_path / "s.toml").stdout)
    assert [warning.split(".")[0] for warning in told["warnings"][:2]] == [
        "Column 'price' has values with € and with $",
        "Column 'share' has values with % and without",
    ]
    lost = "In column 'reward' 1 value is not written as a number, such as '?', and empty in the copy."
    assert told["warnings"][2:] == [lost]
    assert lost in " ".join(run(path, "--yes", "-o", tmp_path / "s.toml").stdout.split())


def test_numbers_of_rows_are_no_feature_also_as_floats(tmp_path):
    columns = {"row": [f"{i}.0" for i in range(40)], "x": [f"{i % 7}.0" for i in range(40)], "y": ["1", "2"] * 20}
    look = look_at([str(_written(tmp_path / "log.csv", columns, ","))])
    assert roles(propose(look, Said(arm="y")))["row"] == "identifier"
    assert roles(propose(look, Said(arm="y")))["x"] == "feature"


def test_parts_without_rows_do_not_matter(run, tmp_path):
    for name, rows in (("a.csv", 0), ("b.csv", 40), ("c.csv", 0)):
        columns = {"arm": [str(i % 2) for i in range(rows)], "reward": [f"{i % 5}.5" for i in range(rows)]}
        _written(tmp_path / name, columns, ",")
    look = look_at([str(tmp_path)])
    assert (look.columns, look.rows, len(look.files)) == (("arm", "reward"), 40, 3)
    assert "40 read" in run(tmp_path / "?.csv", "--yes", "-o", tmp_path / "s.toml").stdout


def test_one_bad_cell_does_not_make_a_text_of_a_column(tmp_path):
    path = tmp_path / "log.csv"
    path.write_text("v,w\n" + "".join(f"{i}.5,1\n" for i in range(99)) + "unknown,1\n", encoding="utf-8")
    assert look_at([str(path)]).profiles[0].kind == "number"


def test_the_prepared_copy_holds_the_same_values(tmp_path):
    written = look_at([str(shop(tmp_path / "shop.csv", encoding="cp1252"))])
    assert write_prepared(written, tmp_path / "copy.parquet").rows == ROWS
    plain = shop(tmp_path / "plain.csv", delimiter=",", comma=False, dates="%Y-%m-%d")
    table, expected = pq.read_table(tmp_path / "copy.parquet"), look_at([str(plain)])
    assert {profile.name: profile.repair for profile in expected.profiles if profile.repair} == {"revenue": "money"}
    first = plain.read_text(encoding="utf-8").splitlines()[1].split(",")
    assert table["basket"][0].as_py() == float(first[4])
    assert table["revenue"][0].as_py() == float(first[8].removesuffix(" €"))
    assert table["order date"][0].as_py() == dt.datetime.fromisoformat(first[2])
    assert table["channel"][1].as_py() == "Straße"


def test_parquet_and_bad_files(tmp_path):
    pq.write_table(pa.table({"when": [dt.date(2024, 1, 1), dt.date(2024, 3, 1)], "n": [1, 2]}), tmp_path / "t.parquet")
    look = look_at([str(tmp_path / "t.parquet")])
    assert [profile.kind for profile in look.profiles] == ["date", "integer"]
    (tmp_path / "empty.csv").write_text("a,b\n", encoding="utf-8")
    (tmp_path / "twice.csv").write_text("a,a\n1,2\n", encoding="utf-8")
    for name, message in (("empty.csv", "no rows"), ("twice.csv", "'a' more than once"), ("none.csv", "no file")):
        with pytest.raises(SourceError, match=message):
            look_at([str(tmp_path / name)])


def test_odd_files(tmp_path):
    """Quoted texts over several lines, a byte-order mark, a comma in a name, values that are no single values."""
    quoted = tmp_path / "quoted.csv"
    lines = "".join(f'"go {i % 2}","line one\nline ""two"", {i}",{i % 5}\n' for i in range(300))
    quoted.write_text('action,"remark, long",reward\n' + lines, encoding="utf-8-sig")
    look = look_at([str(quoted)])
    assert (look.columns, look.rows) == (("action", "remark, long", "reward"), 300)
    table = pa.table({"tags": [["a"], ["b"]], "raw": [b"x", b"y"], "at": [dt.time(1), dt.time(2)], "x": [1.0, 2.0]})
    pq.write_table(table, tmp_path / "nested.parquet")
    look = look_at([str(tmp_path / "nested.parquet")])
    assert [profile.kind for profile in look.profiles] == ["other", "other", "other", "number"]
    assert roles(propose(look, Said()))["tags"] == "left out"
    (tmp_path / "ragged.csv").write_text("arm,x,reward\n1,2,3\n1,2\n", encoding="utf-8")
    with pytest.raises(SourceError, match="Expected 3 columns, got 2"):
        look_at([str(tmp_path / "ragged.csv")])


@pytest.mark.parametrize(
    ("rewards", "message"),
    [(["yes", "no"], "holds texts such as 'yes', and a reward is a number"), ([1, 1], "always 1")],
)
def test_a_reward_that_is_none_is_named(tmp_path, rewards, message):
    look = look_of(tmp_path, {"x": np.arange(40.0), "arm": ["a", "b"] * 20, "reward": rewards * 20})
    assert message in unclear(propose(look, Said()), "reward", look)
    with pytest.raises(SchemaError, match=message):
        propose(look, Said(reward="reward"))


# ------------------------------------------------------------------------------------------------- proposing


def test_what_is_proposed_for_a_shops_export(tmp_path):
    proposal = propose(look_at([str(shop(tmp_path / "shop.csv"))]), Said())
    assert roles(proposal) == {
        "order id": "identifier", "customer": "left out", "order date": "date", "age": "feature", "basket": "feature",
        "channel": "category", "remark": "left out", "offer": "arm", "revenue": "reward", "country": "left out",
    }  # fmt: skip
    assert all(column.why for column in proposal.columns)
    told = proposal.described()
    assert told["derived"] == ["weekday(`order date`)", "month(`order date`)"]
    assert told["intercept"] is True
    assert told["recorded"] == ["age", "basket", "channel", "order date"]


def look_of(tmp_path, columns):
    path = tmp_path / "made.parquet"
    pq.write_table(pa.table(columns), path)
    return look_at([str(path)])


def test_several_outcomes_are_not_guessed_and_are_no_features(tmp_path):
    rng = np.random.default_rng(0)
    base = {"x": rng.normal(size=50), "segment": ["a", "b"] * 25}
    look = look_of(tmp_path, {**base, "visit": [0, 1] * 25, "spend": rng.normal(size=50)})
    proposal = propose(look, Said())
    assert proposal.missing == ("reward",)
    assert proposal.rewards == ("visit", "spend")
    chosen = roles(propose(look, Said(reward="visit")))
    assert (chosen["visit"], chosen["spend"]) == ("reward", "outcome")
    assert roles(propose(look, Said(reward="visit", keep=("spend",))))["spend"] == "feature"


def test_what_had_happened_before_is_no_outcome(tmp_path):
    rng = np.random.default_rng(0)
    base = {"segment": ["a", "b"] * 25, "days_since_visit": rng.integers(0, 60, 50), "previous purchases": [0, 1] * 25}
    found = propose(look_of(tmp_path, {**base, "click": [0, 1] * 25}), Said())
    assert roles(found) == {
        "segment": "arm", "days_since_visit": "feature", "previous purchases": "feature", "click": "reward",
    }  # fmt: skip
    alone = propose(look_of(tmp_path, {**base, "x": rng.normal(size=50)}), Said())
    assert alone.missing == ("reward",), "what came of it is none of the columns"


def test_prices_and_doses_may_be_arms(tmp_path):
    rng = np.random.default_rng(0)
    base = {"x": rng.normal(size=60), "margin": rng.normal(size=60)}
    doses = propose(look_of(tmp_path, {**base, "dose": [0.5, 1.0, 1.5] * 20}), Said())
    assert roles(doses)["dose"] == "arm"
    look = look_of(tmp_path, {**base, "price": [7.49, 9.99] * 30})
    prices = propose(look, Said())
    assert prices.missing == ("arm",), "a price may be a feature as well"
    assert "It may be price." in unclear(prices, "arm", look)
    measured = look_of(tmp_path, {**base, "dose": rng.gamma(2, 1, 60).round(2)})
    assert "no column can be the arm" in unclear(propose(measured, Said()), "arm", measured)


def test_identifiers_constants_and_probabilities(tmp_path):
    n = 80
    rng = np.random.default_rng(1)
    look = look_of(
        tmp_path,
        {
            "row": np.arange(n), "seqn": 7.0 * np.arange(n) + rng.integers(0, 7, n),
            "user_id": rng.integers(0, 10**9, n), "code": [f"{i:x}" for i in range(n)],
            "zone": rng.integers(1, 5, n), "weight": rng.normal(size=n), "prob": rng.random(n),
            "arm": ["a", "b"] * (n // 2), "reward": rng.normal(size=n), "note": [None] * (n - 5) + ["late"] * 5,
        },
    )  # fmt: skip
    found = roles(propose(look, Said()))
    assert [found[name] for name in ("row", "seqn", "user_id", "code")] == ["identifier"] * 4
    assert (found["zone"], found["weight"], found["prob"], found["note"]) == (
        "category", "feature", "left out", "left out",
    )  # fmt: skip
    assert roles(propose(look, Said(propensity="prob")))["prob"] == "propensity"


def test_what_the_user_says_goes_first(tmp_path):
    look = look_at([str(shop(tmp_path / "shop.csv"))])
    proposal = propose(look, Said(recorded=("age",), hidden=("channel", "mood"), arm="offer", intercept=False))
    told = proposal.described()
    channel = {"kind": "category", "name": "channel", "levels": ["Straße", "web"]}
    assert (told["features"], told["recorded"]) == (["age", channel, "mood"], ["age"])
    assert told["intercept"] is False
    schema = proposal.schema()
    assert schema.n_features - schema.n_recorded == 3
    hidden_date = propose(look, Said(hidden=("order date",))).schema()
    assert [name for name in hidden_date.features if name.name == "order date"]
    assert "order date" not in hidden_date.recorded


@pytest.mark.parametrize(
    ("said", "message"),
    [
        (Said(arm="ofer"), "no column 'ofer' for --arm"),
        (Said(ignore=("nothing",)), "no column 'nothing' for --ignore"),
        (Said(arm="offer", hidden=("offer",)), "named by --arm and by --hidden"),
        (Said(hidden=("order id",)), "different texts"),
        (Said(hidden=("baskit",)), "the file has a column 'basket': did you mean that one"),
    ],
)
def test_what_cannot_be_is_said(tmp_path, said, message):
    with pytest.raises(SchemaError, match=message):
        propose(look_at([str(shop(tmp_path / "shop.csv"))]), said)


# ------------------------------------------------------------------------------------------------ the command


def test_from_a_file_to_a_verdict(run, tmp_path):
    file, schema = shop(tmp_path / "shop.csv", encoding="cp1252"), tmp_path / "schema.toml"
    done = run(file, "--yes", "-o", schema, "--html", tmp_path / "page.html")
    assert done.exit_code == 0, done.exception
    assert "<svg" in (tmp_path / "page.html").read_text(encoding="utf-8")
    for words in ("is taken as", "What the log is worth", "Gain over the old policy", "●", "Next", "sidelight init"):
        assert words in done.stdout
    assert "shop.prepared.parquet" in done.stdout
    text = schema.read_text(encoding="utf-8")
    assert text.startswith(trying.HEADER)
    assert "#   remark      left out: missing in 67% of the rows" in text
    # the command that is named next reads what was written
    summary = sl.summarize_log(str(tmp_path / "shop.prepared.parquet"), read_schema_file(schema))
    assert summary.n_rows == ROWS
    assert summary.schema.intercept
    assert set(summary.arms) == {"none", "10 % off"}


def test_json_has_everything_and_nothing_else_is_printed(run, tmp_path):
    file = shop(tmp_path / "shop.csv", delimiter=",", comma=False, dates="%Y-%m-%d")
    done = run(file, "--json", "-o", tmp_path / "s.toml", "--hidden", "basket", "--no-intercept")
    told = json.loads(done.stdout)
    assert told["diagnosis"]["worth"]["source"] == "measured"
    assert {c["name"] for c in told["columns"] if c["hidden"]} == {"basket"}
    assert {line["stage"] for line in told["verdict"]["lines"]} == {"log", "complete"}
    assert told["schema"]["intercept"] is False
    assert tomllib.loads((tmp_path / "s.toml").read_text(encoding="utf-8")) == {"version": 2, **told["schema"]}


def test_curved_takes_what_the_log_asks_for(run, tmp_path):
    rng = np.random.default_rng(4)
    age, basket = rng.normal(40, 10, 900), rng.gamma(2, 400, 900)
    offer = rng.choice(["none", "gift"], 900)
    revenue = 0.1 * (age - 40) ** 2 + 0.001 * basket + (offer == "gift") + rng.normal(size=900)
    path = tmp_path / "shop.parquet"
    pq.write_table(pa.table({"age": age, "basket": basket, "offer": offer, "revenue": revenue}), path)
    named = ["--arm", "offer", "--reward", "revenue", "--yes", "--out", str(tmp_path / "s.toml")]
    straight = run(str(path), *named, "--json")
    told = run(str(path), *named, "--curved")
    assert "spline(age, 3)" in told.output
    assert "of what straight effects leave" in told.output
    schema = read_schema_file(tmp_path / "s.toml")
    assert "spline(age, 3)" in [term.label for term in schema.derived]
    described = json.loads(run(str(path), *named, "--curved", "--json").output)
    assert described["schema"]["derived"] == [proposal["term"] for proposal in described["proposals"]]
    assert "derived" not in json.loads(straight.output)["schema"]
    flat = {"a": rng.normal(size=600), "offer": offer[:600], "revenue": rng.normal(size=600)}
    pq.write_table(pa.table(flat), path)
    assert "This log shows no nonlinear effect of a recorded column" in run(str(path), *named, "--curved").output


def test_without_a_terminal_it_wants_yes_and_names(run, tmp_path):
    file = shop(tmp_path / "shop.csv")
    done = run(file, "-o", tmp_path / "s.toml")
    assert "add --yes" in str(done.exception)
    assert not (tmp_path / "s.toml").exists()
    text = file.read_text(encoding="utf-8").replace("offer", "c1").replace("revenue", "c2")
    (tmp_path / "plain.csv").write_text(text, encoding="utf-8")
    told = str(run(tmp_path / "plain.csv", "--yes", "-o", tmp_path / "s.toml").exception)
    assert "which column is the arm (what was done)? It may be" in told
    assert "--arm NAME" in told
    assert "--reward NAME" in told


def test_in_a_terminal_it_asks(run, tmp_path, monkeypatch):
    file = shop(tmp_path / "shop.csv")
    text = file.read_text(encoding="utf-8").replace("offer", "c1").replace("revenue", "c2")
    file.write_text(text, encoding="utf-8")
    monkeypatch.setattr(trying, "is_terminal", lambda: True)
    done = run(file, "-o", tmp_path / "s.toml", ask="nothing\nc1\nc2\nn\n")
    assert done.exit_code == 0, done.exception
    assert "There is no column 'nothing'" in done.stdout
    assert tomllib.loads((tmp_path / "s.toml").read_text(encoding="utf-8"))["arm"] == "c1"
    assert "Next: sidelight diagnose" in done.stdout
    assert "What the log proves" not in done.stdout


def test_a_schema_of_others_is_not_replaced(run, tmp_path):
    file, schema = shop(tmp_path / "shop.csv", rows=200), tmp_path / "schema.toml"
    schema.write_text("features = []\n", encoding="utf-8")
    assert "was not written by this command" in str(run(file, "--yes", "-o", schema).exception)
    assert schema.read_text(encoding="utf-8") == "features = []\n"
    assert run(file, "--yes", "--force", "-o", schema).exit_code == 0
    assert run(file, "--yes", "-o", schema).exit_code == 0


def test_one_arm_only_has_a_reason_instead_of_a_verdict(run, tmp_path):
    pq.write_table(
        pa.table({"x": [1.0, 2, 4, 3] * 10, "arm": ["a"] * 40, "reward": [1.0, 3, 2, 5] * 10}), tmp_path / "o.parquet"
    )
    told = json.loads(run(tmp_path / "o.parquet", "--json", "--arm", "arm", "-o", tmp_path / "s.toml").stdout)
    assert told["verdict"] is None
    assert told["verdict_missing"].startswith("What the log proves cannot be told:")


def test_a_column_that_began_later_is_offered_as_hidden_and_a_banner_is_an_arm(tmp_path):
    """A shop's log with eras: the newer half has a column more. And a click log's arm by its name."""
    rows = [f"{i % 7},{'' if i < 700 else i % 11},{'sale' if i % 3 else 'video'},{i % 2}" for i in range(1_000)]
    path = tmp_path / "log.csv"
    path.write_text("\n".join(["pages,loyalty,banner,clicked", *rows]) + "\n")
    proposal = propose(look_at([str(path)]), Said())
    assert roles(proposal) == {"pages": "feature", "loyalty": "left out", "banner": "arm", "clicked": "reward"}
    reason = next(column.why for column in proposal.columns if column.name == "loyalty")
    assert "missing in 70% of the rows" in reason
    assert "--hidden loyalty if the learner will see it" in reason


def test_rows_that_lack_values_are_offered_as_eras(run, tmp_path):
    rng, n = np.random.default_rng(0), 600
    age = np.where(rng.random(n) < 0.15, np.nan, np.round(rng.normal(40, 9, n)))
    item, clicked = rng.choice(["news", "sport"], n), rng.integers(0, 2, n)
    rows = [
        f"{'' if np.isnan(a) else a},{h},{i},{c}"
        for a, h, i, c in zip(age, rng.normal(size=n), item, clicked, strict=True)
    ]
    (tmp_path / "clicks.csv").write_text("\n".join(["age,speed,item,clicked", *rows]))
    told = json.loads(run(tmp_path / "clicks.csv", "--json", "-o", tmp_path / "schema.toml").stdout)
    assert next(column["name"] for column in told["columns"] if column["role"] == "arm") == "item"
    (step,) = [step for step in told["next"] if "--eras missing" in step]
    file, schema = shlex.split(step.split("sidelight summarize ")[1])[:3:2]
    eras = sl.summarize_eras(file, read_schema_file(schema), by="missing")
    assert sorted(era.n_rows for era in eras.values()) == sorted(
        [int(np.isnan(age).sum()), int((~np.isnan(age)).sum())]
    )


def test_a_hidden_category_does_not_settle_the_levels_of_others(tmp_path, run):
    """Those of recorded ones were declared as text, and as the first 50,000 rows have them: other rows were lost."""
    rng = np.random.default_rng(0)
    n = 60_000
    zones = rng.integers(1, 4, n)
    zones[55_000:] = 9
    columns = {"zone": zones, "tier": rng.choice(["x", "y"], n), "arm": rng.choice(["a", "b"], n)}
    columns["reward"] = rng.normal(size=n)
    path, out = tmp_path / "log.parquet", tmp_path / "schema.toml"
    pq.write_table(pa.table(columns), path)
    done = run(path, "--hidden", "tier", "--categories", "zone", "-o", out, "--yes")
    assert done.exit_code == 0
    assert "60,000 read, 60,000 used" in done.output
    schema = read_schema_file(out)
    assert schema.features[1] == sl.Category("tier", ("x", "y"), "x", chosen_baseline=True)
    assert sl.summarize_log(path, schema).schema.features[0].levels == (1, 2, 3, 9)


def test_curved_effects_are_written_beside_those_of_dates(tmp_path, run):
    """The schema that --curved wrote had lost the weekday, and could not be read again."""
    rng = np.random.default_rng(0)
    n = 3_000
    day = [(dt.date(2022, 1, 1) + dt.timedelta(days=i // 6)).isoformat() for i in range(n)]
    age = rng.normal(size=n)
    columns = {"age": age, "when": day, "arm": rng.choice(["a", "b"], n), "reward": age**2 + rng.normal(size=n)}
    path, out = tmp_path / "log.parquet", tmp_path / "schema.toml"
    pq.write_table(pa.table(columns), path)
    assert run(path, "--curved", "-o", out, "--yes").exit_code == 0
    labels = [term.label for term in read_schema_file(out).derived]
    assert "spline(age, 3)" in labels
    assert "weekday(when)" in labels


def looked_at(tmp_path, text, name="log.csv"):
    path = tmp_path / name
    path.write_text(text, encoding="utf-8")
    return look_at([str(path)])


@pytest.mark.parametrize(
    ("values", "words"),
    [
        (["a"] * 40, "it is always a"),
        ([""] * 40, "it is empty"),
        ([f"2024-01-{day:02d}" for day in range(1, 21)] * 2, "it holds dates such as 2024-01-01"),
        ([f"{i / 8}" for i in range(40)], "it has 40 different values, such as 0.0"),
        (["a", "b", "", ""] * 10, "it is missing in 50% of the rows"),
    ],
)
def test_a_column_that_is_called_the_arm_and_cannot_be_it(values, words, tmp_path):
    """Asking which other column it may be would send the user away from the cause."""
    rows = "".join(f"{i},{value},{i % 7}.5\n" for i, value in enumerate(values))
    look = looked_at(tmp_path, "loyalty,arm,reward\n" + rows)
    assert f"column 'arm' cannot be the arm: {words}" in unclear(propose(look, Said()), "arm", look)


def test_a_file_without_a_header(tmp_path, run):
    path = tmp_path / "log.csv"
    path.write_text("21.9,Rome,b,0.2\n" + "".join(f"{i}.5,Oslo,{'ab'[i % 2]},{i % 9}\n" for i in range(40)))
    result = run(path, "--yes")
    assert str(result.exception).count("Has the file no header?") == 1
    with pytest.raises(SourceError, match=r"more than once.*Has the file no header"):
        looked_at(tmp_path, "1.5,1.5,a\n2.5,3.5,b\n")


def test_columns_without_a_name_are_said_to_be_left_out(tmp_path):
    look = looked_at(tmp_path, ",x,arm,reward\n" + "".join(f"{i},{i % 7},{'ab'[i % 2]},{i % 5}\n" for i in range(40)))
    assert look.unnamed == 1
    assert "3 columns (and 1 without a name, left out); 40 rows looked at" in trying._opening(look)


def test_an_empty_folder(tmp_path):
    with pytest.raises(SourceError, match="has no files in it"):
        look_at([str(tmp_path)])


def test_lengths_of_time_are_left_out(tmp_path):
    table = pa.table({
        "wait": pa.array([dt.timedelta(hours=i) for i in range(40)]),
        "arm": ["a", "b"] * 20,
        "reward": np.arange(40.0) % 7,
    })  # fmt: skip
    pq.write_table(table, tmp_path / "log.parquet")
    proposal = propose(look_at([str(tmp_path / "log.parquet")]), Said())
    assert proposal.columns[0].role == "left out"


def test_a_proposal_that_is_no_schema_writes_nothing(tmp_path, run):
    path, out = tmp_path / "log.csv", tmp_path / "schema.toml"
    path.write_text("intercept,arm,reward\n" + "".join(f"{i % 7},{'ab'[i % 2]},{i % 5}\n" for i in range(40)))
    result = run(path, "--yes", "--out", out)
    assert "there is a feature called 'intercept'" in str(result.exception)
    assert not out.exists()


def test_curved_effects_of_a_csv_file_whose_arms_are_numbers(tmp_path, run):
    rng = np.random.default_rng(0)
    age, arm = rng.normal(size=600), rng.integers(1, 4, 600)
    path = tmp_path / "log.csv"
    with open(path, "w", encoding="utf-8") as stream:
        stream.write("age,arm,reward\n")
        stream.writelines(f"{a:.3f},{k},{a * a + rng.normal():.3f}\n" for a, k in zip(age, arm, strict=True))
    result = run(path, "--yes", "--json", "--curved", "--out", tmp_path / "schema.toml")
    assert [term["term"] for term in json.loads(result.stdout)["proposals"]] == ["spline(age, 3)"]
