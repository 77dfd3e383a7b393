"""What AWS makes of a signature: it is computed once more, from the bytes that have come.

https://docs.aws.amazon.com/IAM/latest/UserGuide/reference_sigv-create-signed-request.html
(2026-11-23); by botocore's own signer, fed with what the request says was signed.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import UTC, datetime

from botocore.auth import SigV4Auth
from botocore.awsrequest import AWSRequest
from botocore.credentials import Credentials

_AUTHORIZATION = re.compile(
    r"AWS4-HMAC-SHA256 Credential=(?P<key>[^/]+)/(?P<day>\d{8})/(?P<region>[^/]+)"
    r"/(?P<service>[^/]+)/aws4_request, SignedHeaders=(?P<headers>[^,]+),"
    r" Signature=(?P<signature>[0-9a-f]{64})"
)
_NEEDED = {"host", "x-amz-date", "content-type"}


@dataclass(frozen=True)
class Account:
    """Whom AWS knows."""

    access_key: str
    secret_key: str
    token: str | None = None

    @property
    def env(self) -> dict[str, str]:
        """The variables from which AWS's tools take it."""
        env = {"AWS_ACCESS_KEY_ID": self.access_key, "AWS_SECRET_ACCESS_KEY": self.secret_key}
        return env if self.token is None else {**env, "AWS_SESSION_TOKEN": self.token}


def complaint(
    account: Account,
    service: str,
    region: str,
    method: str,
    url: str,
    headers: Mapping[str, str],
    body: bytes,
) -> str | None:
    """The type of the error with which AWS would answer; None for a request that is signed well."""
    said = {name.lower(): value for name, value in headers.items()}
    found = _AUTHORIZATION.fullmatch(said.get("authorization", ""))
    if found is None:
        return "MissingAuthenticationTokenException"
    if found["key"] != account.access_key or said.get("x-amz-security-token") != account.token:
        return "UnrecognizedClientException"
    signed = found["headers"].split(";")
    tokens = {"x-amz-security-token"} if account.token else set()
    if not (_NEEDED | tokens) <= set(signed) or signed != sorted(signed):
        return "IncompleteSignatureException"
    when = datetime.strptime(said["x-amz-date"], "%Y%m%dT%H%M%SZ").replace(tzinfo=UTC)
    if abs((datetime.now(UTC) - when).total_seconds()) > 300:
        return "InvalidSignatureException"
    if (found["service"], found["region"]) != (service, region):
        return "InvalidSignatureException"
    request = AWSRequest(method, url, {name: said[name] for name in signed}, body)
    request.context["timestamp"] = said["x-amz-date"]
    credentials = Credentials(account.access_key, account.secret_key, account.token)
    signer = SigV4Auth(credentials, service, region)
    expected = signer.signature(
        signer.string_to_sign(request, signer.canonical_request(request)), request
    )
    return None if expected == found["signature"] else "InvalidSignatureException"
