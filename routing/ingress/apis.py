"""All client APIs, in the order in which they are asked whether a request is theirs."""

from __future__ import annotations

from routing.ingress.api import ClientAPI
from routing.ingress.openai import OPENAI_API
from routing.ingress.responses import RESPONSES_CLIENT_API

CLIENT_APIS: tuple[ClientAPI, ...] = (RESPONSES_CLIENT_API, OPENAI_API)
