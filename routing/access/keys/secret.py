"""A key itself: random, shown once, and kept as a hash alone."""

from __future__ import annotations

import hashlib
import os
import secrets

PREFIX = "sk-lc-"
"""What keys that are made here begin with. Many clients want `sk-`."""


def new_id() -> str:
    """A new key's id, by which lists, records and people name it."""
    return os.urandom(6).hex()


def new_secret(key_id: str) -> str:
    """A new key for `key_id`: visible prefix and 256 random bits."""
    return f"{visible_prefix(key_id)}-{secrets.token_urlsafe(32)}"


def visible_prefix(key_id: str) -> str:
    """The beginning of a key, which may be shown."""
    return PREFIX + key_id


def digest_of(key: bytes) -> str:
    """What is kept of a key: its SHA-256 in hexadecimal.

    Who knows the digest can't find the key, as keys are as long as the digest; a slow hash is for
    passwords, which people choose.
    """
    return hashlib.sha256(key).hexdigest()
