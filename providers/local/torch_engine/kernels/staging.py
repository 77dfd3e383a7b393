"""Numbers that the host tells kernels, step by step."""

from __future__ import annotations

import torch

from providers.local.torch_engine.devices import host_buffer


class Staged:
    """Numbers on the host, and at an address on the device that stays.

    They are copied while the host goes on, which must not write over them before that is through.

    Args:
        shape: of both; zeros at first.
        dtype: likewise.
        device: where kernels read them.
    """

    def __init__(self, *shape: int, dtype: torch.dtype, device: torch.device) -> None:
        self._host = host_buffer(*shape, dtype=dtype, device=device).zero_()
        self._there = torch.zeros(shape, dtype=dtype, device=device)
        self._copied = torch.cuda.Event() if device.type == "cuda" else None

    def to_write(self) -> torch.Tensor:
        """The host's, once the device has read what was sent before."""
        if self._copied is not None:
            self._copied.synchronize()
        return self._host

    def send(self, rows: int | None = None) -> torch.Tensor:
        """Have the device get what was written, of the first axis the first `rows`; all of them if
        None.

        Returns:
            All of the device's; the next time that is sent writes over it.
        """
        self._there[:rows].copy_(self._host[:rows], non_blocking=True)
        if self._copied is not None:
            self._copied.record()
        return self._there
