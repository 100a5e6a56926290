"""Figures as data: complete, equal to the published settings, and named the same everywhere."""

from __future__ import annotations

from dataclasses import replace

import pytest

from sidelight.errors import InputError
from sidelight.experiments.catalogue import FULL, QUICK, catalogue, choose
from sidelight.experiments.figure_settings import LearnerSetting, RunSetting, WorldSetting, digest, options
from sidelight.experiments.registry import WORLDS, learner_factory, make_world
from sidelight.learners.registry import KINDS


def test_all_figures_are_there() -> None:
    names = [figure.name for figure in catalogue(FULL)]
    paper = [f"{x}{f}-{p}" for f in ("", "-fused") for p in ("paper_text", "authors_code") for x in "abc"]
    assert names == [*paper, "log-size", "confounding", "queries", "lies"]
    assert names == [figure.name for figure in catalogue(QUICK)]


def test_settings_are_the_published_ones() -> None:
    """The authors' table: T, λ, δ, α, L, log sizes, seeds; both presets differ in the world alone."""
    figures = {figure.name: figure for figure in catalogue(FULL)}
    a = figures["a-authors_code"]
    assert {cell.setting.horizon for cell in a.cells} == {100_000}
    assert a.seeds == 5
    assert {cell.setting.recorded for cell in a.cells} == {0, 5, 10, 15, 20, 25}
    assert {cell.setting.log_rows for cell in a.cells if cell.setting.learner.uses_log} == {1_000_000}
    values = dict(a.cells[-1].setting.learner.values)
    assert (values["regularization"], values["delta"], values["alpha"]) == (0.1, 0.01, 0.01)
    with_log = [cell for cell in figures["b-authors_code"].cells if cell.setting.learner.uses_log]
    alphas = [dict(cell.setting.learner.values)["alpha"] for cell in with_log]
    assert alphas == [0.001, 0.01, 0.05, 0.1, 0.15, 0.2, 1.0]  # the last is the theory's, which the paper leaves out
    sizes = {cell.setting.log_rows for cell in figures["c-authors_code"].cells if cell.setting.learner.uses_log}
    assert sizes == {10_000, 100_000, 1_000_000}
    assert {cell.x for cell in figures["log-size"].cells} == {10**k for k in range(2, 8)}
    for letter in "abc":
        text, code = figures[f"{letter}-paper_text"], figures[f"{letter}-authors_code"]
        swapped = [replace(cell.setting, world=WorldSetting("authors_code")) for cell in text.cells]
        assert swapped == [cell.setting for cell in code.cells]


def test_known_is_solid_and_estimated_dashed() -> None:
    for figure in catalogue(FULL):
        if figure.name[0] in "ac" and figure.name[1] == "-":
            for cell in figure.cells:
                assert cell.dashed == cell.series.endswith("estimated"), cell.series


def test_digests_name_settings_and_nothing_else() -> None:
    one = RunSetting(WorldSetting("confounded"), LearnerSetting("OFUL", options(alpha=0.5, noise=0.1)), 100, 6, 50)
    same = RunSetting(WorldSetting("confounded"), LearnerSetting("OFUL", options(noise=0.1, alpha=0.5)), 100, 6, 50)
    other = replace(one, horizon=101)
    assert digest(one) == digest(same) != digest(other)
    # pinned: a file written by one machine is found by another
    assert digest(one) == "8b652cc8aeb245f1"


def test_choosing() -> None:
    figures = catalogue(QUICK)
    assert [f.name for f in choose(figures, ["lies"])] == ["lies"]
    assert {f.name for f in choose(figures, ["a"])} == {
        "a-paper_text",
        "a-authors_code",
        "a-fused-paper_text",
        "a-fused-authors_code",
    }
    with pytest.raises(InputError, match="there is no figure 'z'"):
        choose(figures, ["a", "z"])


@pytest.mark.parametrize("kind", WORLDS)
def test_every_world_can_be_made(kind: str) -> None:
    values = {"lies": "shifted"} if kind == "drifted" else {}
    assert make_world(kind, 1, values).n_arms >= 2


def test_registry_says_what_is_wrong() -> None:
    with pytest.raises(InputError, match="there is no world 'mars'"):
        make_world("mars", 0)
    with pytest.raises(InputError, match="does not take these settings"):
        make_world("dosing", 0, {"sharpnes": 2.0})
    with pytest.raises(InputError, match="there is no learner"):
        learner_factory("UCB")
    with pytest.raises(InputError, match="has no setting 'lambda'"):
        learner_factory("OFUL", {"lambda": 3})
    with pytest.raises(InputError, match="takes no hidden"):
        learner_factory("OFUL", {"hidden": "queries"})
    with pytest.raises(InputError, match="is not one of"):
        learner_factory("FusedOFUL", {"hidden": "guesses"})
    assert set(KINDS) >= {"OFUL", "FusedOFUL"}
