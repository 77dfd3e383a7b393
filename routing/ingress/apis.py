"""All client APIs, in the order in which they are asked whether a request is theirs."""

from __future__ import annotations

from routing.ingress.api import ClientAPI
from routing.ingress.gemini import GEMINI_API
from routing.ingress.ollama import OLLAMA_API
from routing.ingress.openai import OPENAI_API

CLIENT_APIS: tuple[ClientAPI, ...] = (OLLAMA_API, GEMINI_API, OPENAI_API)
