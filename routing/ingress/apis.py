"""All client APIs, in the order in which they are asked whether a request is theirs."""

from __future__ import annotations

from routing.ingress.api import ClientAPI
from routing.ingress.openai import OPENAI_API

CLIENT_APIS: tuple[ClientAPI, ...] = (OPENAI_API,)
