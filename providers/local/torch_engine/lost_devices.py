"""The GPUs that this process has lost, whoever found that out: all that it runs there goes by this.

An illegal address, a failed assertion or a hardware error in a kernel takes the device from the
whole process: CUDA answers every call that comes later with the same error, and "to continue using
CUDA, the process must be terminated and relaunched" (CUDA Runtime API, `cudaError_t`). So nothing
here brings one back; requests for it are refused without asking it anything. It imports no torch,
as those who ask may have none.
"""

from __future__ import annotations

import logging

from llama_compat.errors import APIError

log = logging.getLogger(__name__)

_lost: dict[str, None] = {}


def lost() -> tuple[str, ...]:
    """Those that are lost, such as `cuda:0`."""
    return tuple(_lost)


def lose(device: str, error: BaseException) -> None:
    """`device` is lost, as `error` has shown; said once."""
    if device not in _lost:
        _lost[device] = None
        log.critical(
            "%s is lost to this process, and every model on it: CUDA gives it back to a new process"
            " alone. Start the server again",
            device,
            exc_info=error,
        )


def refusal(device: str) -> APIError | None:
    """The error for a request that would be computed on `device`; None where that can be."""
    if device not in _lost:
        return None
    return APIError(
        503,
        f"'{device}' has failed, and nothing more can be computed on it until this server's process"
        " is started again; its log has the cause. Ask again after that, or for a model that is"
        " somewhere else.",
        code="device_lost",
    )
