"""Options of the whole suite; they are here because pytest reads no deeper conftest for them."""

from __future__ import annotations

import signal

import pytest
from hypothesis import HealthCheck, settings

# What a shell starts in the background ignores Ctrl-C, and so would all that the tests start.
signal.signal(signal.SIGINT, signal.default_int_handler)

# No test depends on how fast the machine is, nor on how busy.
settings.register_profile("suite", deadline=None, suppress_health_check=[HealthCheck.too_slow])
settings.load_profile("suite")

STARTER_MODEL = "SmolLM2-135M-Instruct"


def pytest_addoption(parser: pytest.Parser) -> None:
    group = parser.getgroup("llama_compat")
    group.addoption(
        "--text-model",
        default=STARTER_MODEL,
        help="the model that the tests of text generation ask for (default: %(default)s)",
    )
    group.addoption(
        "--base-url",
        help="test a server that runs already, such as http://localhost:8321/v1/openai/v1; its key"
        " is read from OPENAI_API_KEY",
    )
    group.addoption(
        "--template",
        default="starter",
        help="the template, by name or path, of the server that the tests start (%(default)s)",
    )
    group.addoption(
        "--abuse",
        action="store_true",
        help="run what takes long in tests/abuse too, and hold the rest against the bounds of a"
        " machine that has nothing else to do",
    )
