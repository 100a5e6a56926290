"""What each column of a user's file might be for: a proposal with a reason for every column, never a decision.

Roles are guessed from types, names and numbers of values. What the user says overrides guesses; what cannot be guessed
is missing from the proposal and must be given.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any

from sidelight.cli.looking import Look, mistyped
from sidelight.cli.profiles import MANY_LEVELS, Profile
from sidelight.errors import SchemaError
from sidelight.labels import Label, label_to_json, sorted_labels
from sidelight.logs.schema.schema import Schema
from sidelight.logs.schema.schema_file import SCHEMA_FILE_VERSION, schema_from_description

__all__ = ["Column", "Proposal", "Said", "propose", "unclear"]

FEW_NUMBERS = 12
"""A column of numbers with fractions that has more different values is a measurement, not an arm."""
_RISING_ROWS = 20
"""Whole numbers that rise from row to row over at least this many rows are taken for a row number."""
MOST_MISSING = 0.2
"""A column that lacks more values than this is left out; rows that lack a value of a feature cannot be used."""
_ARM = {"arm", "action", "treatment", "variant", "decision", "assignment", "assigned", "regimen"}
_ARM_TOO = {
    "segment", "group", "offer", "plan", "campaign", "policy", "choice", "option", "therapy", "drug", "promotion",
    "promo", "coupon", "discount", "recommendation", "strategy", "experiment", "version", "cell", "intervention",
    "banner", "creative", "ad", "dose", "item", "article", "product",
}  # fmt: skip
_REWARD = {"reward", "outcome", "response", "payoff", "utility"}
_REWARD_TOO = {
    "target", "y", "revenue", "umsatz", "spend", "spent", "sales", "profit", "margin", "conversion", "converted",
    "click", "clicked", "clicks", "visit", "visited", "purchase", "purchased", "bought", "success", "score", "rating",
    "satisfaction", "gain", "churn", "churned", "retained", "result", "returned",
}  # fmt: skip
_BEFORE = {"since", "last", "previous", "prev", "prior", "past", "before", "earlier", "recency", "history", "ago"}
"""Words in the names of what happened before the decision, so that it is not an outcome: days since the last visit."""
_IDENTIFIER = {
    "id",
    "uuid",
    "guid",
    "key",
    "hash",
    "email",
    "mail",
    "phone",
    "name",
    "nr",
    "session",
    "subject",
    "user",
}
_PROPENSITY = {"propensity", "probability", "prob"}


@dataclass(frozen=True)
class Said:
    """What the user said about columns; every list may be empty, every name missing."""

    arm: str | None = None
    reward: str | None = None
    propensity: str | None = None
    recorded: tuple[str, ...] = ()
    hidden: tuple[str, ...] = ()
    categories: tuple[str, ...] = ()
    keep: tuple[str, ...] = ()
    ignore: tuple[str, ...] = ()
    intercept: bool = True


@dataclass(frozen=True)
class Column:
    """One column: its name, what it is proposed to be, and why.

    ``role`` is ``arm``, ``reward``, ``propensity``, ``feature``, ``category``, ``date``, ``identifier``, ``outcome`` or
    ``left out``; ``hidden`` features are those that the log is said to lack.
    """

    name: str
    role: str
    why: str
    hidden: bool = False

    @property
    def used(self) -> bool:
        """Whether it enters the schema as a feature."""
        return self.role in ("feature", "category", "date")


@dataclass(frozen=True)
class Proposal:
    """A role for every column, and which columns might be arm or reward where that is open."""

    columns: tuple[Column, ...]
    arms: tuple[str, ...] = ()
    rewards: tuple[str, ...] = ()
    derived: tuple[str, ...] = ()
    levels: Mapping[str, tuple[Label, ...]] = field(default_factory=dict)
    intercept: bool = True

    def named(self, role: str) -> str | None:
        """The column with this role, if there is one."""
        return next((column.name for column in self.columns if column.role == role), None)

    @property
    def missing(self) -> tuple[str, ...]:
        """What must be said before anything can be read: ``arm``, ``reward``."""
        return tuple(role for role in ("arm", "reward") if self.named(role) is None)

    def described(self) -> dict[str, Any]:
        """The schema as a mapping that TOML can hold.

        Levels of recorded categories are left to the log: what was looked at may lack some.

        Raises:
            SchemaError: no column is left to be a feature, or a hidden category has too many levels to list.
        """
        features = [column for column in self.columns if column.role in ("feature", "category")]
        dates = [column.name for column in self.columns if column.role == "date" and not column.hidden]
        if not features and not self.derived and not self.intercept:
            raise SchemaError("no column is left to be a feature. Name some with --recorded, or allow an intercept.")
        recorded = [column.name for column in features if not column.hidden] + dates
        categories = [column.name for column in features if column.role == "category" and not column.hidden]
        told: dict[str, Any] = {
            "features": [
                self._with_levels(column.name) if column.role == "category" and column.hidden else column.name
                for column in features
            ],
            "recorded": recorded,
            "arm": self.named("arm"),
            "reward": self.named("reward"),
            "intercept": self.intercept,
        }
        if self.named("propensity") is not None:
            told["propensity"] = self.named("propensity")
        if self.derived:
            told["derived"] = list(self.derived)
        if categories:
            told["categories"] = categories
        return told

    def _with_levels(self, name: str) -> dict[str, Any]:
        levels = [label_to_json(level) for level in sorted_labels(self.levels[name])]
        return {"kind": "category", "name": name, "levels": levels}

    def schema(self) -> Schema:
        """The proposal as a ``Schema``."""
        return schema_from_description({"version": SCHEMA_FILE_VERSION, **self.described()}, "that is proposed")


def propose(look: Look, said: Said) -> Proposal:
    """Propose what each column is.

    Raises:
        SchemaError: the user named a column that is not there, or gave one column two roles.
    """
    _check(look, said)
    profiles = {profile.name: profile for profile in look.profiles}
    fixed = {said.arm, said.reward, said.propensity}
    free = [p for p in look.profiles if p.name not in {*fixed, *said.recorded, *said.hidden, *said.ignore, *said.keep}]
    arms = [] if said.arm else _candidates(free, _ARM, _ARM_TOO, _may_be_arm)
    arm = said.arm or (arms[0] if len(arms) == 1 else None)
    rewards = (
        [] if said.reward else _candidates([p for p in free if p.name != arm], _REWARD, _REWARD_TOO, _may_be_reward)
    )
    reward = said.reward or (rewards[0] if len(rewards) == 1 else None)
    columns = [_column(profiles[name], said, arm, reward) for name in look.columns]
    dates = [profiles[column.name] for column in columns if column.role == "date"]
    derived = tuple(term for profile in dates for term in _date_terms(profile))
    levels = {profile.name: profile.labels for profile in look.profiles}
    absent = [Column(name, "feature", "you say that the log lacks it; it is not in the file", True)
              for name in said.hidden if name not in profiles]  # fmt: skip
    return Proposal((*columns, *absent), tuple(arms), tuple(rewards), derived, levels, said.intercept)


def _check(look: Look, said: Said) -> None:
    named: list[tuple[str, str]] = [
        (option, name)
        for option, name in (("--arm", said.arm), ("--reward", said.reward), ("--propensity", said.propensity))
        if name is not None
    ]
    for option, names in (("--recorded", said.recorded), ("--categories", said.categories), ("--keep", said.keep),
                          ("--ignore", said.ignore)):  # fmt: skip
        named += [(option, name) for name in names]
    for option, name in named:
        if name not in look.columns:
            raise SchemaError(f"there is no column {name!r} for {option}; there are {', '.join(look.columns)}.")
    for name in said.hidden:
        others = [column for column in look.columns if column not in (*said.hidden, *said.recorded, *said.keep)]
        close = None if name in look.columns else mistyped(name, others)
        if close is not None:
            raise SchemaError(
                f"{name!r} is to be hidden, and the file has a column {close!r}: did you mean that one? Where both "
                f"exist, name it too: --keep {close}."
            )
    for profile in look.profiles:
        wrong = _no_reward(profile)
        if profile.name == said.reward and wrong:
            raise SchemaError(f"column {profile.name!r} cannot be the reward: {wrong}.")
    roles: dict[str, str] = {}
    for option, names in (
        ("--arm", _one(said.arm)), ("--reward", _one(said.reward)), ("--propensity", _one(said.propensity)),
        ("--recorded", said.recorded), ("--hidden", said.hidden), ("--ignore", said.ignore),
    ):  # fmt: skip
        for name in names:
            if name in roles:
                raise SchemaError(f"column {name!r} is named by {roles[name]} and by {option}; it can be one of them.")
            roles[name] = option


def _one(name: str | None) -> tuple[str, ...]:
    return () if name is None else (name,)


def _words(name: str) -> list[str]:
    """The words of a column's name: ``orderDate_utc`` → order, date, utc."""
    return [word.lower() for word in re.findall(r"[A-Z]+(?![a-z])|[A-Z]?[^\W\d_A-Z]+|\d+", name)] or [name.lower()]


def _candidates(profiles: Iterable[Profile], strong: set[str], weak: set[str], fits: Any) -> list[str]:
    """The columns whose names suggest a role; only those with the highest score."""
    found: dict[str, int] = {}
    for profile in profiles:
        if not fits(profile):
            continue
        words = _words(profile.name)
        if len(words) > 3:
            continue  # a long name, such as a sentence, contains too many words to be evidence
        score = 4 * bool(strong & set(words)) or 2 * bool(weak & set(words))
        if score:
            found[profile.name] = score + (len(words) == 1)
    best = max(found.values(), default=0)
    return [name for name, score in found.items() if score == best]


def _may_be_arm(profile: Profile) -> bool:
    """Whether a column may be the arm: a choice has few values, fewer if they are numbers with fractions."""
    full = profile.missing_share <= MOST_MISSING
    few = 2 <= profile.distinct <= (MANY_LEVELS if profile.kind != "number" else FEW_NUMBERS)
    return full and few and profile.kind in ("text", "integer", "boolean", "number")


def _may_be_reward(profile: Profile) -> bool:
    full = profile.missing_share <= MOST_MISSING
    return full and profile.kind in ("number", "integer", "boolean") and profile.distinct >= 2 and not _earlier(profile)


def _earlier(profile: Profile) -> bool:
    """Whether its name says that it happened before the decision."""
    return bool(_BEFORE & set(_words(profile.name)))


def _no_reward(profile: Profile) -> str:
    """Why a column cannot be the reward; empty if it can."""
    if profile.kind in ("number", "integer", "boolean"):
        return "" if profile.distinct > 1 else f"it is always {profile.example}, so nothing can be told apart by it"
    if profile.kind == "text":
        return f"it holds texts such as {profile.example!r}, and a reward is a number (1 and 0 for yes and no)"
    return f"it is {'empty' if profile.kind == 'empty' else 'no number'}"


def _no_arm(profile: Profile) -> str:
    """Why a column is not proposed as the arm unless the user names it; empty if it may be."""
    if profile.kind in ("empty", "other"):
        return "it is empty" if profile.kind == "empty" else f"it holds {profile.example}"
    if profile.distinct == 1:
        return f"it is always {profile.example}, and a log of one arm has nothing to compare"
    if profile.missing_share > MOST_MISSING:
        return f"it is missing in {profile.missing_share:.0%} of the rows"
    if profile.kind == "date":
        return f"it holds dates such as {profile.example}"
    return "" if _may_be_arm(profile) else f"it has {profile.distinct:,} different values, such as {profile.example}"


def _column(profile: Profile, said: Said, arm: str | None, reward: str | None) -> Column:
    name = profile.name
    hidden = name in said.hidden
    if name == arm:
        return Column(name, "arm", _because(said.arm, f"{_values(profile)}, and by its name"))
    if name == reward:
        return Column(name, "reward", _because(said.reward, f"{profile.kind}, and by its name"))
    if name == said.propensity:
        return Column(name, "propensity", "you said so")
    if name in said.ignore:
        return Column(name, "left out", "you said so")
    if hidden or name in said.recorded or name in said.keep:
        why = "you say that the log lacks it" if hidden else "you said so"
        if profile.kind == "date":
            return Column(name, "date", why, hidden)
        category = name in said.categories or profile.kind == "text"
        if category and hidden and not profile.levels:
            raise SchemaError(
                f"{name!r} is to be hidden and has {profile.distinct:,} different texts: a hidden category needs a "
                "list of levels, so it can have a few dozen at most."
            )
        return Column(name, "category" if category else "feature", why, hidden)
    role, why = _guess(profile, said)
    if said.recorded and role in ("feature", "category", "date"):
        return Column(name, "left out", "not among --recorded")
    return Column(name, role, why)


def _because(said: str | None, otherwise: str) -> str:
    return "you said so" if said is not None else otherwise


def _values(profile: Profile) -> str:
    shown = ", ".join(profile.levels[:4]) + (", …" if profile.distinct > 4 else "")
    return f"{profile.distinct:,} values ({shown})"


def _guess(profile: Profile, said: Said) -> tuple[str, str]:
    """Role and reason of a column about which the user said nothing."""
    words = set(_words(profile.name))
    present = profile.rows - profile.missing
    if profile.kind == "empty":
        return "left out", "empty"
    if profile.kind == "other":
        return "left out", f"neither number, text nor date ({profile.example})"
    if profile.distinct == 1:
        return "left out", f"always {profile.example}"
    if profile.missing_share > MOST_MISSING:
        return "left out", (
            f"missing in {profile.missing_share:.0%} of the rows (--hidden {profile.name} if the learner will see it, "
            "--keep to use the other rows, or all of them as eras)"
        )
    if words & _PROPENSITY and profile.kind == "number":
        return "left out", "looks like the old policy's probability (--propensity if it is)"
    if profile.sequence and profile.distinct == present:
        return "identifier", "counts the rows"
    if profile.rising and present >= _RISING_ROWS:
        return "identifier", "rises from row to row, all whole numbers (--keep if it is a feature)"
    unique = present >= 20 and profile.distinct > 0.9 * present
    named = bool(words & _IDENTIFIER) and profile.distinct > MANY_LEVELS
    if profile.kind in ("text", "integer") and (named or (unique and profile.kind == "text")):
        no_category = ": too many for a category" if profile.name in said.categories else ""
        return "identifier", f"{profile.distinct:,} different values" + (", and by its name" if named else no_category)
    if profile.kind == "date":
        return "date", "its " + " and ".join(term.split("(")[0] for term in _date_terms(profile)) + " as features"
    if words & (_REWARD | _REWARD_TOO) and _may_be_reward(profile):
        return "outcome", "looks like another outcome; what an arm may have changed is no feature (--keep if it is one)"
    if profile.name in said.categories:
        return "category", "you said so"
    if profile.kind == "text":
        if profile.distinct > MANY_LEVELS:
            return "left out", f"{profile.distinct:,} different texts such as {profile.example!r}"
        return "category", _values(profile)
    if (
        profile.kind == "integer"
        and 2 < profile.distinct <= 12
        and words & {"code", "type", "class", "zone", "region", "store"}
    ):
        return "category", f"{_values(profile)}, and by its name"
    return "feature", "a number" if profile.kind != "boolean" else "true or false"


def _date_terms(profile: Profile) -> list[str]:
    """What is derived from a date: weekday, month if the log spans most of a year, hour if there are times."""
    quoted = profile.name if re.fullmatch(r"[^\W\d][\w.]*", profile.name) else f"`{profile.name}`"
    parts = ["weekday", *(["month"] if profile.span > 300 else []), *(["hour"] if profile.timed else [])]
    return [f"{part}({quoted})" for part in parts]


def unclear(proposal: Proposal, role: str, look: Look) -> str:
    """The question which column is the arm or the reward, with those that might be, or why none can be."""
    named = proposal.arms if role == "arm" else proposal.rewards
    fits = _may_be_arm if role == "arm" else _may_be_reward
    taken = {proposal.named("arm"), proposal.named("reward")}
    possible = named or tuple(p.name for p in look.profiles if fits(p) and p.name not in taken)
    if not named:
        # weaker words are not used for the arm: they also fit many features, such as a product or an item
        strong, all_words = (_ARM, _ARM) if role == "arm" else (_REWARD, _REWARD | _REWARD_TOO)
        for profile in sorted(look.profiles, key=lambda profile: not strong & set(_words(profile.name))):
            wrong = _no_arm(profile) if role == "arm" else _no_reward(profile)
            if wrong and all_words & set(_words(profile.name)):
                return f"column {profile.name!r} cannot be the {role}: {wrong}. Correct it, or say --{role} NAME."
    meaning = (
        "what was done" if role == "arm" else "what came of it, a number where more is better; turn the sign of costs"
    )
    if not possible:
        needed = "numbers that differ"
        if role == "arm":
            needed = f"2 to {MANY_LEVELS} different values (at most {FEW_NUMBERS} where they have fractions)"
        return (
            f"no column can be the {role} ({meaning}): it needs {needed} in nearly every row. Say which: --{role} NAME."
        )
    shown = ", ".join(possible[:12]) + (", …" if len(possible) > 12 else "")
    return f"which column is the {role} ({meaning})? It may be {shown}. Say so: --{role} NAME."
