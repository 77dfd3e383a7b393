"""Google's access tokens, by google-auth, which is loaded when a template names a project.

https://cloud.google.com/docs/authentication/application-default-credentials (2026-11-23)
"""

from __future__ import annotations

import logging
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any, Literal

from providers.remote.http1.headers import HeaderBlock, encode_headers
from providers.remote.upstream.credentials import CredentialsError, Lease, RequestCredentials

MODULES = ("google.auth", "requests")
EXTRA = "google"

SCOPE = "https://www.googleapis.com/auth/cloud-platform"


class GoogleCredentials(RequestCredentials[HeaderBlock]):
    """Sends an access token with the requests of one provider.

    Args:
        provider: its id, for messages.
        service_account: a file with its key; without it Application Default Credentials.
    """

    what = "Google credentials"
    advice = (
        "Check that they are the right ones (`gcloud auth application-default print-access-token`),"
        " that they may use Vertex AI in the project (the role `roles/aiplatform.user`), and that"
        " its API is on."
    )

    def __init__(self, provider: str, service_account: Path | None = None) -> None:
        super().__init__(provider)
        self._service_account = service_account

    async def authorize(
        self,
        method: Literal["GET", "POST", "DELETE"],
        url: str,
        content_type: str,
        body: bytes | None,
    ) -> HeaderBlock:
        """The token, and who pays where that is somebody else."""
        return await self._value.get()

    def fetch(self) -> Lease[HeaderBlock]:
        """A token that has just been given out."""
        import google.auth.exceptions
        from google.auth.transport.requests import Request

        for name in ("google", "urllib3", "requests"):
            # At DEBUG they would write down answers that hold tokens.
            logging.getLogger(name).setLevel(logging.INFO)
        try:
            found = self._find()
            found.refresh(Request())
        except (google.auth.exceptions.GoogleAuthError, OSError, ValueError) as error:
            raise CredentialsError(_first_words(error)) from error
        headers: dict[str, str] = {}
        found.apply(headers)
        expiry = found.expiry
        if expiry is None:
            return Lease(encode_headers(headers), (found.token,))

        def ends_within(seconds: float) -> bool:
            now = datetime.now(UTC).replace(tzinfo=None)
            return bool(expiry - now < timedelta(seconds=seconds))

        return Lease(encode_headers(headers), (found.token,), ends_within)

    def _find(self) -> Any:
        if self._service_account is None:
            import google.auth

            return google.auth.default(scopes=[SCOPE])[0]
        from google.oauth2 import service_account

        made: Any = service_account.Credentials
        return made.from_service_account_file(str(self._service_account), scopes=[SCOPE])


def _first_words(error: Exception) -> str:
    # What follows in some of them is the whole answer.
    return str(error.args[0]) if error.args else repr(error)
