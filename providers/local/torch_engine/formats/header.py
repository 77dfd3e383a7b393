"""What a safetensors file says of its tensors."""

from __future__ import annotations

import json
import os
import struct
from pathlib import Path
from typing import Any, BinaryIO


def header_of(path: Path) -> tuple[int, dict[str, Any]]:
    """Where the numbers of a safetensors file begin, and what its header says of each tensor.

    Raises:
        ValueError: it is damaged.
    """
    with path.open("rb") as file:
        return header_in(file)


def header_in(file: BinaryIO) -> tuple[int, dict[str, Any]]:
    """As `header_of`, of an open file that nothing was read of."""
    first = file.read(8)
    (size,) = struct.unpack("<Q", first) if len(first) == 8 else (-1,)
    if not 0 <= size <= os.fstat(file.fileno()).st_size:
        raise ValueError(f"{os.path.basename(file.name)} is damaged")
    header: dict[str, Any] = json.loads(file.read(size))
    return 8 + size, header
