"""What a vendor is sent: written into a file that nobody else sees, and sent from there. All of it
blocks, but for what is sent, which is read as it goes."""

from __future__ import annotations

import mmap
import tempfile
from collections.abc import Sequence

from providers.remote.batches.base import InputEnvelope


class OrderInput:
    """The input of an order. Nothing of it is left once it is let go of.

    Args:
        folder: where to write it; None for the system's place for such.
        envelope: what stands around its lines.

    Attributes:
        lines: how many it has.
        size: bytes so far.
    """

    def __init__(self, folder: str | None, envelope: InputEnvelope) -> None:
        self._file = tempfile.TemporaryFile(dir=folder)  # noqa: SIM115 (it outlives this call)
        self._envelope = envelope
        self._file.write(envelope.before)
        self.lines = 0
        self.size = len(envelope.before) + len(envelope.after)

    def add(self, lines: Sequence[bytes]) -> None:
        """Append lines."""
        for line in lines:
            if self.lines:
                self._file.write(self._envelope.between)
            self._file.write(line)
            self.lines += 1
            self.size += len(line) + len(self._envelope.between)

    def finish(self) -> memoryview:
        """All of it, read from the file where it is looked at."""
        self._file.write(self._envelope.after)
        self._file.flush()
        return memoryview(mmap.mmap(self._file.fileno(), 0, access=mmap.ACCESS_READ))

    def close(self) -> None:
        """Let go of the file; what was made of it by `finish` lasts as long as it is held."""
        self._file.close()
