"""What templates look for by name: keys, cards, accounts, and how to reach people.

The shapes are those that the makers document; where there is a check digit it is checked, so that
any number of that length is not one.
"""

from __future__ import annotations

import re
import string
from collections.abc import Mapping, Sequence
from typing import Literal, get_args

from llama_compat.guardrails.patterns import Pattern

NamedSet = Literal["api_keys", "cards", "emails", "ibans", "phone_numbers"]
"""The names of the sets."""

_WORD = string.ascii_letters + string.digits + "_-"
_UPPER = string.ascii_uppercase + string.digits


def _luhn(digits: str) -> bool:
    # ISO/IEC 7812-1, annex B
    total = 0
    for place, digit in enumerate(reversed(digits)):
        value = int(digit) * (1 + place % 2)
        total += value - 9 if value > 9 else value
    return total % 10 == 0


def _mod_97(account: str) -> bool:
    # ISO 13616-1: the first four characters go to the end, and letters count from 10 on.
    moved = account[4:] + account[:4]
    return int("".join(str(int(each, 36)) for each in moved)) % 97 == 1


def _ends(text: str) -> list[int]:
    """Where what a match begins with may end: before a separator, or at its end; the last first."""
    return [len(text), *(each.start() for each in reversed(list(re.finditer("[ -]", text))))]


def _card(text: str) -> int:
    for end in _ends(text):
        digits = re.sub("[ -]", "", text[:end])
        if 13 <= len(digits) <= 19 and len(set(digits)) > 1 and _luhn(digits):
            return end
    return 0


def _iban(text: str) -> int:
    for end in _ends(text):
        account = text[:end].replace(" ", "")
        if 15 <= len(account) <= 34 and _mod_97(account):
            return end
    return 0


def _key(expression: str, longest: int, more: str = "") -> Pattern:
    return Pattern("API_KEY", expression, longest, _WORD + more)


NAMED: Mapping[NamedSet, Sequence[Pattern]] = {
    "api_keys": (
        # OpenAI, Anthropic, OpenRouter and others
        _key(r"\bsk-[A-Za-z0-9_-]{20,400}", 403),
        # AWS: https://docs.aws.amazon.com/IAM/latest/UserGuide/reference_identifiers.html
        _key(r"\b(?:AKIA|ASIA)[A-Z0-9]{16}\b", 20),
        # Google
        _key(r"\bAIza[A-Za-z0-9_-]{35}", 39),
        # GitHub: https://github.blog/engineering/behind-githubs-new-authentication-token-formats
        _key(r"\bgh[pousr]_[A-Za-z0-9]{36,255}\b", 259),
        _key(r"\bgithub_pat_[A-Za-z0-9_]{22,255}\b", 266),
        _key(r"\bglpat-[A-Za-z0-9_-]{20,100}", 106),
        _key(r"\bxox[abeoprs]-[A-Za-z0-9-]{10,250}", 255),
        _key(r"\b[rs]k_(?:live|test)_[A-Za-z0-9]{10,250}\b", 258),
        _key(r"\bhf_[A-Za-z0-9]{30,100}\b", 103),
        _key(r"\bnpm_[A-Za-z0-9]{36}\b", 40),
        # a signed token: RFC 7519
        _key(
            r"\beyJ[A-Za-z0-9_-]{8,300}\.eyJ[A-Za-z0-9_-]{8,400}\.[A-Za-z0-9_-]{16,200}", 908, "."
        ),
        Pattern(
            "API_KEY",
            "-----BEGIN [A-Z ]{0,40}PRIVATE KEY-----",
            67,
            _UPPER + " -",
            inner=_UPPER + " ",
        ),
    ),
    "cards": (
        Pattern("CARD", r"\b[0-9](?:[ -]?[0-9]){12,18}\b", 37, string.digits + " -", _card, " -"),
    ),
    "ibans": (
        Pattern(
            "IBAN",
            r"\b[A-Z]{2}[0-9]{2}(?: ?[A-Z0-9]){11,30}\b",
            64,
            _UPPER + " ",
            _iban,
            string.digits + " ",
        ),
    ),
    "emails": (
        Pattern(
            "EMAIL",
            r"\b[A-Za-z0-9][A-Za-z0-9._%+-]{0,63}@[A-Za-z0-9](?:[A-Za-z0-9.-]{0,187}[A-Za-z0-9])?"
            r"\.[A-Za-z]{2,24}\b",
            280,
            string.ascii_letters + string.digits + "._%+-@",
            inner="._%+-@",
        ),
    ),
    "phone_numbers": (
        # E.164: up to 15 digits behind a plus
        Pattern(
            "PHONE",
            r"\+[1-9](?:[ ().-]{0,2}[0-9]){6,14}\b",
            44,
            string.digits + "+ ().-",
            inner=string.digits + " ().-",
        ),
        # North America, without it
        Pattern(
            "PHONE",
            r"(?:\([2-9][0-9]{2}\) ?|\b[2-9][0-9]{2}[ .-])[2-9][0-9]{2}[ .-][0-9]{4}\b",
            14,
            string.digits + " ().-",
            inner=" ).-",
        ),
    ),
}
"""The patterns of each set."""

assert NAMED.keys() == set(get_args(NamedSet))
