"""Commands that are made once for all tests of them."""

from __future__ import annotations

from tests.made_commands import make_commands_once

make_commands_once()
