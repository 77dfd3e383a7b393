"""JSON objects whose members keep the bytes that they were sent as.

A relay must not change what it does not understand: `1.0` stays `1.0`, an integer of thirty digits
keeps them all. So an object is read one level deep, into names and the raw bytes of their values,
and written back from the same bytes.
"""

from __future__ import annotations

import json
import operator
import re
from collections.abc import Callable, Iterator, Sequence
from typing import Any, NoReturn, TypeVar

import msgspec
from msgspec import Raw

from llama_compat.wire.malformed import UNREADABLE

_decoder = msgspec.json.Decoder(dict[str, Raw])
_list_decoder = msgspec.json.Decoder(list[dict[str, Raw]])
_items_decoder = msgspec.json.Decoder(list[Raw])

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


_EMPTY = frozenset({b"null", b'""', b"[]", b"{}"})


def with_items(listed: Raw, change: Callable[[list[Raw]], Sequence[Raw]]) -> Raw:
    """A list of a client's with the items that `change` makes of its own, which may be the same,
    or fewer.

    Items that are the same keep their bytes. The very same list comes back if all are, and if it is
    none or can't be read, by `change` either: the vendor says better what is wrong with it.
    """
    try:
        items = _items_decoder.decode(listed)
        changed = change(items)
    except UNREADABLE:
        return listed
    if len(changed) == len(items) and all(map(operator.is_, changed, items)):
        return listed
    return to_raw(changed)


def is_empty(value: Raw | None) -> bool:
    """Whether a member says nothing: it is not there, null, or an empty text, list or object."""
    return value is None or (memoryview(value).nbytes <= 4 and bytes(value) in _EMPTY)


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
# stream inside a character; but msgspec refuses them. So they are disguised while it reads: DEL, a
# control character that nobody sends, is in the place of the backslash, and of both backslashes of
# an escaped one, so that the text behind it is no escape. Other escapes of `\uDXXX` go with them.

_DISGUISE = b"\x7f"
_BACKSLASHES = bytes.maketrans(_DISGUISE, b"\\")
_ESCAPED_D = re.compile(rb"\\u[dD]")
_NO_ESCAPE = re.compile(rb"\\u[dD](?![0-9a-fA-F]{3})")
_SLICE_BYTES = 1024 * 1024
"""Between two slices another thread may run."""


def _parse_with_lone_surrogates(decoder: msgspec.json.Decoder[_Parsed], data: bytes) -> _Parsed:
    slices = range(0, len(data), _SLICE_BYTES)
    if _DISGUISE in data or not any(
        _ESCAPED_D.search(data, at, at + _SLICE_BYTES + 2) for at in slices
    ):
        raise msgspec.DecodeError("lone surrogate")
    parsed = decoder.decode(b"".join(map(_disguised, _between_escapes(data))))
    if isinstance(parsed, dict):
        return _undisguised(parsed)
    return [_undisguised(fields) for fields in parsed]


def _between_escapes(data: bytes) -> Iterator[bytes]:
    """`data` in slices that begin and end outside of escapes."""
    at, size = 0, len(data)
    while at < size:
        end = at + _SLICE_BYTES
        piece = data[at:end]
        backslashes = len(piece) - len(piece.rstrip(b"\\"))
        if backslashes % 2:
            end -= 1
        elif not backslashes:
            # The end may be behind `\u`, of which the backslash may be one that is escaped.
            begin = piece.rfind(b"\\", -_ESCAPE_BYTES)
            if begin > 0:
                before = piece[: begin + 1]
                if (len(before) - len(before.rstrip(b"\\"))) % 2:
                    end = at + begin
        yield data[at:end]
        at = end


_ESCAPE_BYTES = len(rb"\uXXXX")


def _disguised(piece: bytes) -> bytes:
    piece = piece.replace(b"\\\\", 2 * _DISGUISE)
    if _NO_ESCAPE.search(piece):
        raise msgspec.DecodeError("invalid escape")
    return piece.replace(b"\\ud", _DISGUISE + b"ud").replace(b"\\uD", _DISGUISE + b"uD")


def _undisguised(fields: JSONFields) -> JSONFields:
    return {
        _undisguised_name(name): Raw(bytes(value).translate(_BACKSLASHES))
        for name, value in fields.items()
    }


def _undisguised_name(name: str) -> str:
    if "\x7f" not in name:
        return name
    if len(name) > _SLICE_CHARACTERS:
        raise msgspec.DecodeError("the name of a member is too long")
    text: str = json.loads(json.dumps(name, ensure_ascii=False).replace("\x7f", "\\"))
    # In a name, a surrogate without its other half is an error again: it can't be written back.
    try:
        text.encode()
    except UnicodeEncodeError:
        raise msgspec.DecodeError("lone surrogate") from None
    return text


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
        return json.loads(data, parse_constant=refuse_constant)
    except RecursionError:
        raise ValueError("nested too deeply") from None


def refuse_constant(name: str) -> NoReturn:
    """Refuse NaN and the infinities, which Python's own `json` takes, and would be written as null.

    Raises:
        ValueError: always.
    """
    raise ValueError(f"{name} is not JSON")


def unicode_from_raw(raw: Raw) -> Any:
    """As `from_raw`, but all text is valid Unicode: U+FFFD is in the place of a lone surrogate."""
    try:
        return msgspec.json.decode(raw)
    except msgspec.DecodeError:
        pass
    except RecursionError:
        raise ValueError("nested too deeply") from None
    value = _loads(bytes(raw))
    try:
        return _whole_characters(value)
    except RecursionError:
        raise ValueError("nested too deeply") from None


_UNKNOWN = dict.fromkeys(range(0xD800, 0xE000), "\ufffd")
_SLICE_CHARACTERS = 64 * 1024


def _whole_characters(value: Any) -> Any:
    """`value`, decoded from JSON, with U+FFFD for each surrogate whose other half is missing."""
    if isinstance(value, str):
        if value.isascii():
            return value
        slices = range(0, len(value), _SLICE_CHARACTERS)
        return "".join(value[at : at + _SLICE_CHARACTERS].translate(_UNKNOWN) for at in slices)
    if isinstance(value, list | tuple):
        return [_whole_characters(item) for item in value]
    if isinstance(value, Raw):
        return _whole_characters(from_raw(value))
    if isinstance(value, msgspec.Struct):
        return _whole_characters(msgspec.to_builtins(value))
    if isinstance(value, dict):
        return {_whole_characters(name): _whole_characters(item) for name, item in value.items()}
    return value


def encode_json(value: Any) -> bytes:
    """`value` as JSON in UTF-8; U+FFFD is in the place of half a character."""
    try:
        return msgspec.json.encode(value)
    except UnicodeEncodeError:
        return msgspec.json.encode(_whole_characters(value))


def encode_fields(fields: JSONFields) -> bytes:
    """The JSON object with these members, in their order."""
    return msgspec.json.encode(fields)
