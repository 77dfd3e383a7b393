"""All client APIs, in the order in which they are asked whether a request is theirs."""

from __future__ import annotations

from routing.ingress.apis.anthropic import ANTHROPIC_API
from routing.ingress.apis.client_api import ClientAPI
from routing.ingress.apis.gemini import GEMINI_API
from routing.ingress.apis.interactions import INTERACTIONS_CLIENT_API
from routing.ingress.apis.ollama import OLLAMA_API
from routing.ingress.apis.openai import OPENAI_API
from routing.ingress.apis.responses import RESPONSES_CLIENT_API

CLIENT_APIS: tuple[ClientAPI, ...] = (
    ANTHROPIC_API,
    OLLAMA_API,
    INTERACTIONS_CLIENT_API,
    GEMINI_API,
    RESPONSES_CLIENT_API,
    OPENAI_API,
)
