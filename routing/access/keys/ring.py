"""All keys of a distribution, found by the hash of what a client sent."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field

from llama_compat.distribution import Distribution, KeyGrant, KeySettings
from llama_compat.exchange import Principal
from routing.access.keys.secret import digest_of


@dataclass(frozen=True, slots=True)
class Key:
    """One key, without its secret.

    Attributes:
        principal: who is asking with it.
        expires: from when on it opens nothing, in seconds since 1970; None for never.
        is_revoked: whether it opens nothing at all.
    """

    principal: Principal
    expires: float | None = None
    is_revoked: bool = False

    @classmethod
    def of(cls, key_id: str, grant: KeyGrant, *, is_revoked: bool = False) -> Key:
        """The key with this id that opens what `grant` says."""
        return cls(
            Principal(
                key_id,
                grant.name,
                grant.team,
                tuple(grant.models),
                grant.limits,
                grant.budget,
                None if grant.tools is None else tuple(grant.tools),
                tuple(grant.guardrails),
            ),
            grant.expires.timestamp() if grant.expires else None,
            is_revoked,
        )

    def is_good(self, now: float) -> bool:
        """Whether it opens anything at `now`."""
        return not self.is_revoked and (self.expires is None or now < self.expires)


@dataclass(frozen=True, slots=True)
class KeyRing:
    """Keys by digest.

    Attributes:
        given: those of the template.
        stored: those that were made by command or in `/admin/`; changes while the server runs.
        is_open: whether there are none and everybody is let in.
        teams: those of the template.
    """

    given: Mapping[str, Key] = field(default_factory=dict)
    stored: Mapping[str, Key] = field(default_factory=dict)
    is_open: bool = True
    teams: frozenset[str] = frozenset()

    @classmethod
    def of(cls, distribution: Distribution, stored: Mapping[str, Key] | None) -> KeyRing:
        """The ring of a distribution; `stored` is None where it lets in no keys that are stored."""
        plain = (each.get_secret_value() for each in distribution.server.api_keys)
        given = {**_anonymous(plain), **dict(map(_given, distribution.keys))}
        is_open = not given and stored is None
        teams = frozenset(each.id for each in distribution.teams)
        return cls(given, {} if stored is None else stored, is_open, teams)

    def find(self, digest: str) -> Key | None:
        """The key with this digest, good or not."""
        return self.given.get(digest) or self.stored.get(digest)

    def principal(self, key_id: str, now: float) -> Principal | None:
        """Who asks with the key of this id; None where it opens nothing at `now`."""
        for key in (*self.given.values(), *self.stored.values()):
            if key.principal.id == key_id:
                return key.principal if key.is_good(now) and self.has_team(key.principal) else None
        return None

    def has(self, key_id: str) -> bool:
        """Whether there is a key of this id, good or not."""
        keys = (*self.given.values(), *self.stored.values())
        return any(each.principal.id == key_id for each in keys)

    def has_team(self, principal: Principal) -> bool:
        """Whether `principal` is of a team that the template has, or of none."""
        return principal.team is None or principal.team in self.teams

    def of_no_team(self, now: float) -> list[Key]:
        """Stored keys that would be good at `now`, but are of a team that the template has not."""
        stored = self.stored.values()
        return [each for each in stored if each.is_good(now) and not self.has_team(each.principal)]

    def principals(self) -> dict[str, Principal]:
        """Whose the keys are, by id; those that open nothing any more too."""
        keys = (*self.stored.values(), *self.given.values())
        return {each.principal.id: each.principal for each in keys}

    def team_of(self) -> Callable[[str], str]:
        """Tells the team of a key, by its id; empty for one that has none, or is not known."""
        teams = {key_id: each.team or "" for key_id, each in self.principals().items()}
        return lambda key_id: teams.get(key_id, "")

    def names(self) -> dict[str, str]:
        """What people call the keys, by id; those without a name are left out."""
        keys = (*self.given.values(), *self.stored.values())
        return {each.principal.id: each.principal.name for each in keys if each.principal.name}


def _anonymous(keys: Iterable[str]) -> dict[str, Key]:
    """Keys of `server.api_keys`, which open everything."""
    digests = (digest_of(key.encode()) for key in keys)
    return {digest: Key(Principal(_id_of(digest))) for digest in digests}


def _given(settings: KeySettings) -> tuple[str, Key]:
    digest = _digest(settings)
    return digest, Key.of(_id_of(digest), settings)


def _digest(settings: KeySettings) -> str:
    if settings.key is not None:
        return digest_of(settings.key.get_secret_value().encode())
    assert settings.hash is not None
    return settings.hash.removeprefix("sha256:")


def _id_of(digest: str) -> str:
    return f"key-{digest[:12]}"
