"""JSON objects whose members keep the bytes that they were sent as.

A relay must not change what it does not understand: `1.0` stays `1.0`, an integer of thirty digits
keeps them all. So an object is read one level deep, into names and the raw bytes of their values,
and written back from the same bytes.
"""

from __future__ import annotations

import json
from typing import Any, NoReturn

import msgspec
from msgspec import Raw

_decoder = msgspec.json.Decoder(dict[str, Raw])
_list_decoder = msgspec.json.Decoder(list[dict[str, Raw]])

JSONFields = dict[str, Raw]


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
    try:
        return _decoder.decode(data)
    except msgspec.ValidationError as error:
        raise ValueError(str(error)) from None
    except (msgspec.DecodeError, RecursionError) as error:
        return _fields(_parse_leniently(data, error))


def parse_object(raw: Raw) -> JSONFields:
    """The members of an object that is a member of another.

    Raises:
        ValueError: it is no object.
    """
    try:
        return _decoder.decode(raw)
    except msgspec.ValidationError as error:
        raise ValueError(str(error)) from None
    except (msgspec.DecodeError, RecursionError) as error:
        return _fields(_parse_leniently(bytes(raw), error))


def parse_objects(raw: Raw) -> list[JSONFields]:
    """The members of each object of a list that is a member of another object.

    Raises:
        ValueError: it is no list of objects.
    """
    try:
        return _list_decoder.decode(raw)
    except msgspec.ValidationError as error:
        raise ValueError(str(error)) from None
    except (msgspec.DecodeError, RecursionError) as error:
        values = _parse_leniently(bytes(raw), error)
        if not isinstance(values, list):
            raise ValueError(f"Expected `array`, got `{type(values).__name__}`") from None
        return [_fields(value) for value in values]


def _parse_leniently(data: bytes, error: Exception) -> Any:
    # msgspec refuses a lone surrogate (`"\ud83d"`), which is JSON all the same and which vendors do
    # send when they cut a stream inside a character. The standard library takes it.
    try:
        return json.loads(data, parse_constant=_refuse_constant)
    except (ValueError, RecursionError):
        if isinstance(error, RecursionError):
            raise ValueError("nested too deeply") from None
        raise ValueError(str(error)) from None


def _fields(value: Any) -> JSONFields:
    if not isinstance(value, dict):
        raise ValueError(f"Expected `object`, got `{type(value).__name__}`")
    return {name: to_raw(member) for name, member in value.items()}


def _refuse_constant(name: str) -> NoReturn:
    raise ValueError(f"{name} is not JSON")


def to_raw(value: Any) -> Raw:
    """`value` as the raw bytes of its JSON."""
    try:
        return Raw(msgspec.json.encode(value))
    except UnicodeEncodeError:
        return Raw(json.dumps(value).encode())


def from_raw(raw: Raw) -> Any:
    """The value of `raw`; big numbers and lone surrogates as Python's own `json` reads them."""
    try:
        return msgspec.json.decode(raw)
    except msgspec.DecodeError:
        return json.loads(bytes(raw))


def encode_fields(fields: JSONFields) -> bytes:
    """The JSON object with these members, in their order."""
    return msgspec.json.encode(fields)
