"""AWS's signatures (Signature Version 4), by botocore, which is loaded when a template names them.

https://docs.aws.amazon.com/IAM/latest/UserGuide/reference_sigv.html (2026-11-23)
"""

from __future__ import annotations

import logging
from collections.abc import Callable
from typing import Any, Literal

from pydantic import model_validator

from llama_compat.errors import APIError
from llama_compat.off_loop import off_loop
from llama_compat.settings.model import TemplateSettings
from providers.remote.http1.headers import HeaderBlock, encode_headers
from providers.remote.upstream.credentials import (
    CredentialsError,
    Lease,
    RequestCredentials,
)
from providers.requirements import lacking

MODULES = ("botocore",)
EXTRA = "aws"


class AWSSettings(TemplateSettings):
    """With which of AWS's credentials requests are signed."""

    profile: str | None = None
    """One of `~/.aws/config`, with a role or single sign-on if it names that. Without it they are
    looked for where AWS's own tools look: in the environment, in that file's default, and in what
    the container or the machine is given."""

    @model_validator(mode="after")
    def _have_the_library(self) -> AWSSettings:
        if (message := lacking(MODULES, "to sign requests for AWS", EXTRA)) is not None:
            raise ValueError(message)
        return self


Sign = Callable[[str, str, str, "bytes | None"], HeaderBlock]
"""The lines for a method, URL, content type and body."""


class SigV4Credentials(RequestCredentials[Sign]):
    """Signs the requests of one provider.

    Args:
        provider: its id, for messages.
        settings: which credentials.
        service: the name by which AWS knows the service in signatures.
        region: its region.
    """

    what = "AWS credentials"
    advice = (
        "Check that they are the right ones (`aws sts get-caller-identity`), that they may invoke"
        " the model (`bedrock:InvokeModel`), and that the model is open to them in the region."
    )

    def __init__(self, provider: str, settings: AWSSettings, service: str, region: str) -> None:
        super().__init__(provider)
        self._settings = settings
        self._service = service
        self._region = region
        self._session: Any = None

    async def authorize(
        self,
        method: Literal["GET", "POST", "DELETE"],
        url: str,
        content_type: str,
        body: bytes | None,
    ) -> HeaderBlock:
        """The signature over the request, and what it says of itself."""
        sign = await self._value.get()
        return await off_loop(len(body or b""), sign, method, url, content_type, body)

    def refused(self, error: APIError, status: int) -> None:
        """Have files and environment looked at again; else as in `RequestCredentials`."""
        self._session = None
        super().refused(error, status)

    def fetch(self) -> Lease[Sign]:
        """What signs with the credentials that botocore finds, renewed by it if they end soon."""
        import botocore.exceptions
        import botocore.session

        # At DEBUG it would write down what it signs, and the answers that hold keys.
        logging.getLogger("botocore").setLevel(logging.INFO)
        try:
            session = self._session
            if session is None:
                session = self._session = botocore.session.Session(profile=self._settings.profile)
            found = session.get_credentials()
            if found is None:
                raise CredentialsError(
                    "there are none where AWS's tools look for them: set AWS_ACCESS_KEY_ID and"
                    " AWS_SECRET_ACCESS_KEY, log in with `aws sso login`, or name a `profile` under"
                    " `aws` in the template"
                )
            frozen = found.get_frozen_credentials()
        except botocore.exceptions.BotoCoreError as error:
            raise CredentialsError(str(error)) from error
        secrets = (frozen.secret_key, frozen.access_key, frozen.token)
        lease = Lease(
            _signing(frozen, self._service, self._region), tuple(each for each in secrets if each)
        )
        # Those that are written down in a file or in the environment never end.
        is_needed = getattr(found, "refresh_needed", None)
        return lease if is_needed is None else lease._replace(ends_within=is_needed)


def _signing(credentials: Any, service: str, region: str) -> Sign:
    from botocore.auth import SigV4Auth
    from botocore.awsrequest import AWSRequest

    signer = SigV4Auth(credentials, service, region)

    def sign(method: str, url: str, content_type: str, body: bytes | None) -> HeaderBlock:
        # No other headers: a proxy may change them on the way.
        request = AWSRequest(method, url, {"content-type": content_type}, body)
        signer.add_auth(request)
        del request.headers["content-type"]
        return encode_headers(dict(request.headers.items()))

    return sign
