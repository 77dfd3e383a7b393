"""What is the same of Bedrock's APIs: in which region, and with which credentials."""

from __future__ import annotations

import re
from typing import Annotated, Any, ClassVar
from urllib.parse import urlsplit

from pydantic import Field, model_validator

from providers.remote.config import HTTPURL, RemoteConfig
from providers.remote.upstream.credentials import RequestCredentials
from providers.remote.upstream.sigv4 import AWSSettings, SigV4Credentials

_HOST = re.compile(
    r"(?:^|\.)bedrock(?P<kind>-runtime|-mantle)?(?:-fips)?\.(?P<region>[a-z0-9-]+)\."
)
"""Bedrock's own, and those of endpoints in a VPC: `vpce-1.bedrock-runtime.us-east-1.vpce...`."""

_DOMAINS = {"cn": "amazonaws.com.cn", "eusc": "amazonaws.eu"}
"""By the first word of the region's name, where it is not `amazonaws.com`."""

Region = Annotated[str, Field(pattern=r"^[a-z]{2,}(-[a-z]+)+-[0-9]+$")]


class BedrockConfig(RemoteConfig):
    """The settings of both of Bedrock's APIs."""

    path: ClassVar[str] = ""
    """What the API's own paths follow, on the host of a region."""

    base_url: HTTPURL = ""
    """Where the API is, if not at the public address of its `region`."""

    region: Region | None = None
    """AWS's region, such as `us-east-1`. It may be left out where `base_url` names it."""

    aws: AWSSettings | None = None
    """Sign requests with AWS credentials (Signature Version 4) in place of a key: `aws: {}` takes
    those that AWS's own tools would, in the environment, a profile, or a role. They are renewed
    before they end. Needs the extra `aws`."""

    @model_validator(mode="after")
    def _know_where(self) -> BedrockConfig:
        if not self.base_url:
            if self.region is None:
                raise ValueError("expected `region`, such as us-east-1, or `base_url`")
            domain = _DOMAINS.get(self.region.partition("-")[0], "amazonaws.com")
            self.base_url = f"https://bedrock-runtime.{self.region}.{domain}{self.path}"
        if self.aws is not None and self.api_key is not None and self.api_key.get_secret_value():
            raise ValueError(
                "expected one of `api_key` and `aws`: a request is sent with a key or signed"
            )
        if self.aws is not None and not self.signing_region:
            raise ValueError("expected `region`: signatures name it, and `base_url` does not")
        return self

    @property
    def host(self) -> re.Match[str] | None:
        """What the address says, if it is one of Bedrock's own."""
        return _HOST.search(urlsplit(self.base_url).hostname or "")

    @property
    def signing_region(self) -> str:
        """The region that signatures name; empty if nothing says it."""
        return self.region or (self.host["region"] if self.host is not None else "")

    @property
    def control_url(self) -> str:
        """Where models are listed: another host, if it is one of Bedrock's own."""
        found = self.host
        if found is None or found["kind"] is None:
            return self.base_url
        return self.base_url.replace(f"bedrock{found['kind']}", "bedrock", 1)

    def request_credentials(self, provider: str) -> RequestCredentials[Any] | None:
        """Those of AWS, where the template names them."""
        if self.aws is None:
            return None
        # https://docs.aws.amazon.com/bedrock/latest/userguide/endpoints.html: of its two endpoints
        # the newer one is a service of its own in signatures (2026-11-23).
        is_mantle = self.host is not None and self.host["kind"] == "-mantle"
        service = "bedrock-mantle" if is_mantle else "bedrock"
        return SigV4Credentials(provider, self.aws, service, self.signing_region)
