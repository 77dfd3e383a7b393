"""What vouches for servers by TLS, which clients of SDKs read anew each."""

from __future__ import annotations

import os
import ssl
import sys
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from functools import partial
from typing import Any
from unittest.mock import patch

_SDKS = frozenset({"google", "httpcore2", "httpx", "httpx2"})

_TRUSTED = ("SSL_CERT_FILE", "SSL_CERT_DIR")
"""Variables that name certificates."""


@contextmanager
def read_once() -> Iterator[None]:
    """Clients of SDKs share what they trust by default: to read the certificates of all authorities
    takes a twentieth of a second of CPU, and hardly a test asks anybody by TLS."""
    made: dict[Any, ssl.SSLContext] = {}

    def once(make: Callable[..., ssl.SSLContext], *args: Any, **options: Any) -> ssl.SSLContext:
        key = make, args, tuple(sorted(options.items())), *map(os.environ.get, _TRUSTED)
        if key not in made:
            made[key] = make(*args, **options)
        return made[key]

    create = ssl.create_default_context

    def create_once(*args: Any, **options: Any) -> ssl.SSLContext:
        by = sys._getframe(1).f_globals.get("__name__", "").partition(".")[0]
        is_sdks = by in _SDKS and not options.get("cadata")
        return once(create, *args, **options) if is_sdks else create(*args, **options)

    with ExitStack() as stack:
        stack.enter_context(patch.object(ssl, "create_default_context", create_once))
        of_httpx2: Any = sys.modules.get("httpcore2")
        if hasattr(of_httpx2, "default_ssl_context"):
            of_system = partial(once, of_httpx2.default_ssl_context)
            stack.enter_context(patch.object(of_httpx2, "default_ssl_context", of_system))
        yield
