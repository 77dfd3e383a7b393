"""JSON objects whose members keep the bytes that they were sent as.

A relay must not change what it does not understand: `1.0` stays `1.0`, an integer of thirty digits
keeps them all. So an object is read one level deep, into names and the raw bytes of their values,
and written back from the same bytes.
"""

from __future__ import annotations

import json
import re
from typing import Any, TypeVar

import msgspec
from msgspec import Raw

_decoder = msgspec.json.Decoder(dict[str, Raw])
_list_decoder = msgspec.json.Decoder(list[dict[str, Raw]])

JSONFields = dict[str, Raw]
_Parsed = TypeVar("_Parsed", JSONFields, list[JSONFields])

_BOM = b"\xef\xbb\xbf"


def parse_fields(data: bytes) -> JSONFields:
    """The members of the JSON object `data`, a repeated name's last one.

    Raises:
        ValueError: not JSON in UTF-8, or not an object; the message says which and where.
    """
    if not data.isascii():
        try:
            data.decode()
        except UnicodeDecodeError as error:
            raise ValueError(f"not valid UTF-8 (byte {error.start})") from None
        data = data.removeprefix(_BOM)
    return _parse(_decoder, data)


def parse_object(raw: Raw) -> JSONFields:
    """The members of an object that is a member of another.

    Raises:
        ValueError: it is no object.
    """
    return _parse(_decoder, raw)


def parse_objects(raw: Raw) -> list[JSONFields]:
    """The members of each object of a list that is a member of another object.

    Raises:
        ValueError: it is no list of objects.
    """
    return _parse(_list_decoder, raw)


def _parse(decoder: msgspec.json.Decoder[_Parsed], data: bytes | Raw) -> _Parsed:
    try:
        return decoder.decode(data)
    except msgspec.ValidationError as error:
        raise ValueError(str(error)) from None
    except RecursionError:
        raise ValueError("nested too deeply") from None
    except msgspec.DecodeError as error:
        try:
            return _parse_with_lone_surrogates(decoder, bytes(data))
        except msgspec.MsgspecError:
            raise ValueError(str(error)) from None


# A lone surrogate (`"\ud83d"`) is JSON all the same, and vendors do send them when they cut a
# stream inside a character; but msgspec refuses them. So surrogates are disguised while it reads:
# as their digits between two of a control character that nobody sends.

_ESCAPE = re.compile(rb"\\(?:u([dD][89a-fA-F][0-9a-fA-F]{2})|.)", re.DOTALL)
_DISGUISE = b"\x7f"
_DISGUISED = re.compile(rb"\x7f([0-9a-fA-F]{4})\x7f")


def _parse_with_lone_surrogates(decoder: msgspec.json.Decoder[_Parsed], data: bytes) -> _Parsed:
    if _DISGUISE in data:
        raise msgspec.DecodeError("lone surrogate")
    parsed = decoder.decode(_ESCAPE.sub(_disguise, data))
    if isinstance(parsed, dict):
        return _undisguised(parsed)
    return [_undisguised(fields) for fields in parsed]


def _disguise(escape: re.Match[bytes]) -> bytes:
    return escape[0] if escape[1] is None else b"%b%b%b" % (_DISGUISE, escape[1], _DISGUISE)


def _undisguised(fields: JSONFields) -> JSONFields:
    return {
        _undisguised_name(name): Raw(_DISGUISED.sub(rb"\\u\1", bytes(value)))
        for name, value in fields.items()
    }


def _undisguised_name(name: str) -> str:
    # In a name, a surrogate without its other half is an error again: it can't be written back.
    halves = _DISGUISED.sub(
        lambda half: chr(int(half[1], 16)).encode(errors="surrogatepass"), name.encode()
    )
    text = halves.decode(errors="surrogatepass").encode("utf-16-le", "surrogatepass")
    try:
        return text.decode("utf-16-le")
    except UnicodeDecodeError:
        raise msgspec.DecodeError("lone surrogate") from None


def to_raw(value: Any) -> Raw:
    """`value` as the raw bytes of its JSON."""
    try:
        return Raw(msgspec.json.encode(value))
    except UnicodeEncodeError:
        return Raw(json.dumps(value).encode())


def from_raw(raw: Raw) -> Any:
    """The value of `raw`; big numbers and lone surrogates as Python's own `json` reads them.

    Raises:
        ValueError: not JSON, or nested too deeply.
    """
    try:
        return msgspec.json.decode(raw)
    except msgspec.DecodeError:
        return _loads(bytes(raw))
    except RecursionError:
        raise ValueError("nested too deeply") from None


def _loads(data: bytes) -> Any:
    try:
        return json.loads(data)
    except RecursionError:
        raise ValueError("nested too deeply") from None


_SURROGATES = re.compile(
    rb"\\(?:u[dD][89abAB]..\\u[dD][c-fC-F]..|(u[dD][89a-fA-F]..)|.)", re.DOTALL
)


def unicode_from_raw(raw: Raw) -> Any:
    """As `from_raw`, but all text is valid Unicode: U+FFFD is in the place of a lone surrogate."""
    try:
        return msgspec.json.decode(raw)
    except msgspec.DecodeError:
        return _loads(
            _SURROGATES.sub(lambda found: rb"\ufffd" if found[1] else found[0], bytes(raw))
        )
    except RecursionError:
        raise ValueError("nested too deeply") from None


def encode_fields(fields: JSONFields) -> bytes:
    """The JSON object with these members, in their order."""
    return msgspec.json.encode(fields)
