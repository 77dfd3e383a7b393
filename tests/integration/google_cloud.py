"""Google Cloud: a token endpoint, and an API that takes its tokens while they are good."""

from __future__ import annotations

import json
import time
from pathlib import Path
from typing import Any
from urllib.parse import parse_qs

from aiohttp import web
from cryptography.hazmat.primitives import serialization
from cryptography.hazmat.primitives.asymmetric import rsa
from google.auth import jwt

from tests.integration.native_vendor import NativeVendor

EMAIL = "gateway@my-project.iam.gserviceaccount.com"
SCOPE = "https://www.googleapis.com/auth/cloud-platform"
AUDIENCE = "https://oauth2.googleapis.com/token"
"""Whatever the address, google-auth signs for this one."""

KEY = rsa.generate_private_key(public_exponent=65537, key_size=2048)
PEM = serialization.Encoding.PEM


class GoogleCloud(NativeVendor):
    """Answers as it was told to those who bring a token that it gave out.

    Attributes:
        seconds: for how long a token is good.
        given: how many were given out.
    """

    seconds = 3600

    def __init__(self) -> None:
        super().__init__()
        self.given = 0
        self._ends: dict[str, float] = {}

    def service_account(self, folder: Path) -> Path:
        """The file with the key of an account that this cloud knows."""
        private = KEY.private_bytes(
            PEM, serialization.PrivateFormat.PKCS8, serialization.NoEncryption()
        )
        account = {
            "type": "service_account",
            "project_id": "my-project",
            "private_key_id": "1",
            "private_key": private.decode(),
            "client_email": EMAIL,
            "client_id": "1",
            "token_uri": f"{self.url}/token",
        }
        file = folder / "service-account.json"
        file.write_text(json.dumps(account))
        return file

    def withdraw(self) -> None:
        """Take no token any more that was given out."""
        self._ends.clear()

    async def _answer(self, request: web.Request) -> web.StreamResponse:
        if request.path == "/token":
            return self._give(await request.text())
        scheme, _, token = request.headers.get("authorization", "").partition(" ")
        if scheme != "Bearer" or self._ends.get(token, 0) < time.time():
            return _error(401, "UNAUTHENTICATED", f"The token {token} is no good.")
        if request.method == "POST":
            wrong = complaint(request.path, json.loads(await request.read()))
            if wrong is not None:
                return _error(400, "INVALID_ARGUMENT", wrong)
        return await super()._answer(request)

    def _give(self, form: str) -> web.Response:
        asked = parse_qs(form)
        public = KEY.public_key().public_bytes(PEM, serialization.PublicFormat.SubjectPublicKeyInfo)
        try:
            claims: Any = jwt.decode(asked["assertion"][0], public, audience=AUDIENCE)  # type: ignore[no-untyped-call]
        except (ValueError, KeyError) as error:
            return web.json_response(
                {"error": "invalid_grant", "error_description": str(error)}, status=400
            )
        if (claims["iss"], claims["scope"]) != (EMAIL, SCOPE):
            return web.json_response({"error": "invalid_scope"}, status=400)
        self.given += 1
        token = f"ya29.token-number-{self.given}"
        self._ends[token] = time.time() + self.seconds
        return web.json_response(
            {"access_token": token, "expires_in": self.seconds, "token_type": "Bearer"}
        )


def _error(status: int, word: str, message: str) -> web.Response:
    error = {"code": status, "message": message, "status": word}
    return web.json_response({"error": error}, status=status)


_GEMINI = {
    "contents",
    "generationConfig",
    "labels",
    "safetySettings",
    "systemInstruction",
    "toolConfig",
    "tools",
}
_COUNTED = {"contents", "generationConfig", "model", "systemInstruction", "tools", "instances"}


def complaint(path: str, body: dict[str, Any]) -> str | None:
    """What Vertex AI says is wrong with a request; None if nothing is."""
    place, _, method = path.rpartition(":")
    if not place.startswith("/v1/projects/my-project/locations/"):
        return f"Invalid resource: {place}"
    if method in ("generateContent", "streamGenerateContent", "countTokens"):
        known = _COUNTED if method == "countTokens" else _GEMINI
        for name in body.keys() - known:
            return f'Invalid JSON payload received. Unknown name "{name}": Cannot find field.'
        for content in body["contents"]:
            if content.get("role") not in ("user", "model"):
                return "Please use a valid role: user, model."
    elif method in ("rawPredict", "streamRawPredict"):
        if body.get("anthropic_version") != "vertex-2023-10-16":
            return "anthropic_version: Field required"
        counts = place.endswith("/models/count-tokens")
        if ("model" in body) != counts:
            return "model: Extra inputs are not permitted"
        if bool(body.get("stream")) != (method == "streamRawPredict"):
            return "stream: does not go with the method"
    else:
        return f"Unknown method {method}"
    return None
