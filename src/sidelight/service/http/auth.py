"""Tokens: who may do what.

A token is ``sl_<id>_<secret>``. The store keeps the id, which is no secret, and the SHA-256 of the secret, which has
256 random bits: there is nothing to guess, so a slow hash would only slow the service down.
"""

from __future__ import annotations

import hashlib
import hmac
import re
import secrets
import time
from collections.abc import Iterable
from dataclasses import dataclass

from sqlalchemy import select

from sidelight.errors import InputError
from sidelight.service.log import migrations as tables
from sidelight.service.log.store import Store
from sidelight.service.problems import Problem

__all__ = ["SCOPES", "Token", "Tokens", "create_token", "list_tokens", "revoke_token"]

#: decide: decisions. reward: rewards, actions, answers. read: decisions, status, metrics. admin: mode, kill switch.
SCOPES = ("decide", "reward", "read", "admin")

_FORM = re.compile(r"sl_([a-z0-9]{8})_([A-Za-z0-9_-]{43})")
_NOBODY = hashlib.sha256(b"nobody").hexdigest()


@dataclass(frozen=True)
class Token:
    """A token as the store knows it: everything but the secret."""

    id: str
    name: str
    scopes: frozenset[str]
    digest: str
    created: float
    revoked: float | None


#: the token of every request to a service that has no tokens, which only this machine can reach
EVERYBODY = Token("", "no token", frozenset(SCOPES), "", 0.0, None)


def create_token(store: Store, name: str, scopes: Iterable[str]) -> str:
    """Make a token and return it; it is shown this once and can never be read again."""
    wanted = sorted(set(scopes))
    unknown = [scope for scope in wanted if scope not in SCOPES]
    if unknown or not wanted:
        said = f"{unknown[0]!r} is not a scope" if unknown else "a token needs at least one scope"
        raise InputError(f"{said}: choose from {', '.join(SCOPES)}.")
    if not name.strip() or len(name) > 200 or not name.isprintable():
        raise InputError(
            f"a token needs a name of 1 to 200 characters that can be shown, to know later whose it is; {name[:60]!r} "
            "is none."
        )
    if any(token.name == name and token.revoked is None for token in list_tokens(store)):
        raise InputError(
            f"a valid token has the name {name!r} already, and two could not be told apart. Choose another name, or "
            "revoke that one first."
        )
    identity, secret = secrets.token_hex(4), secrets.token_urlsafe(32)
    with store.writing() as connection:
        connection.execute(
            tables.tokens.insert().values(
                id=identity, name=name, scopes=" ".join(wanted), digest=_digest(secret), created=time.time()
            )
        )
    return f"sl_{identity}_{secret}"


def list_tokens(store: Store) -> list[Token]:
    """Every token there ever was, the oldest first."""
    with store.reading() as connection:
        rows = connection.execute(select(tables.tokens).order_by(tables.tokens.c.created)).all()
    return [Token(r.id, r.name, frozenset(r.scopes.split()), r.digest, r.created, r.revoked) for r in rows]


def revoke_token(store: Store, which: str) -> Token:
    """Revoke the token with this id, or with this name if only one has it."""
    found = [t for t in list_tokens(store) if t.revoked is None and which in (t.id, t.name)]
    if len(found) != 1:
        said = "no valid token has" if not found else f"{len(found)} valid tokens have"
        raise InputError(f"{said} the id or name {which!r}. `sidelight tokens list` shows them; revoke by id.")
    with store.writing() as connection:
        connection.execute(tables.tokens.update().where(tables.tokens.c.id == found[0].id).values(revoked=time.time()))
    return found[0]


class Tokens:
    """The valid tokens, in memory; ``refresh`` replaces them with what the store says now."""

    def __init__(self, tokens: Iterable[Token], loopback: bool) -> None:
        self.loopback = loopback
        self.refresh(tokens)

    def refresh(self, tokens: Iterable[Token]) -> None:
        """Take over the store's tokens."""
        every = list(tokens)
        self._valid = {token.id: token for token in every if token.revoked is None}
        # Revoking the last token must not open the door, so a store that ever had one stays closed.
        self.open = self.loopback and not every

    def check(self, authorization: bytes | None, scope: str | None) -> Token:
        """The token of a request, if it has the scope; None asks for any valid token.

        Raises:
            Problem: 401 without a valid token, 403 where it lacks the scope.
        """
        if self.open:
            return EVERYBODY
        return self.require(None if authorization is None else self._identify(authorization), scope)

    def by_id(self, id: str) -> Token | None:
        """The valid token with this id, for a session whose user has shown the secret before."""
        return self._valid.get(id)

    @staticmethod
    def require(token: Token | None, scope: str | None) -> Token:
        """``token``, if there is one and it has the scope.

        Raises:
            Problem: 401 without a token, 403 where it lacks the scope.
        """
        if token is None:
            raise Problem(
                "no-token",
                "send `Authorization: Bearer sl_…` with a valid token; `sidelight tokens create` makes one.",
            )
        if scope is not None and scope not in token.scopes:
            raise Problem(
                "scope-missing",
                f"this needs the scope {scope!r}, and the token {token.name!r} has {', '.join(sorted(token.scopes))}.",
            )
        return token

    def _identify(self, authorization: bytes) -> Token | None:
        kind, _, text = authorization.decode("latin-1").partition(" ")
        form = _FORM.fullmatch(text.strip())
        if kind.lower() != "bearer" or form is None:
            return None
        token = self._valid.get(form[1])
        # An unknown id costs the same comparison as a known one.
        same = hmac.compare_digest(_digest(form[2]), _NOBODY if token is None else token.digest)
        return token if same else None


def _digest(secret: str) -> str:
    return hashlib.sha256(secret.encode()).hexdigest()
