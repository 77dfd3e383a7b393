from __future__ import annotations

import pytest

from llama_compat.errors import APIError
from routing.ingress.apis.files.openai import BATCH_SECONDS, expiry_of


def test_when_a_file_expires() -> None:
    assert expiry_of(None, None, "user_data") is None
    assert expiry_of(None, None, "batch") == BATCH_SECONDS
    assert expiry_of("created_at", "3600", "batch") == 3600
    for anchor, seconds in (("created_at", "3599"), ("created_at", "2592001"), ("now", "3600")):
        with pytest.raises(APIError, match="expires_after"):
            expiry_of(anchor, seconds, "batch")
    for seconds in ("x", "", "9" * 100, None):
        with pytest.raises(APIError, match="seconds"):
            expiry_of("created_at", seconds, "batch")
