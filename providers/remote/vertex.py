"""Google Cloud's Vertex AI: where its models are, and with which credentials they are asked.

https://docs.cloud.google.com/vertex-ai/generative-ai/docs/learn/locations, and the hosts as
google-genai 3.4 and anthropic 2.11 have them (2026-11-23).
"""

from __future__ import annotations

import re
from pathlib import Path
from typing import Annotated, Any, ClassVar

from pydantic import Field, model_validator

from providers.remote.config import HTTPURL, RemoteConfig
from providers.remote.upstream.credentials import RequestCredentials
from providers.remote.upstream.google_tokens import EXTRA, MODULES, GoogleCredentials
from providers.requirements import lacking

_HOSTS = {
    "global": "aiplatform.googleapis.com",
    "us": "aiplatform.us.rep.googleapis.com",
    "eu": "aiplatform.eu.rep.googleapis.com",
}
"""Of locations that are more than one region; a region's has its name in front."""

_VERSION = re.compile(r"/v[0-9]+[a-z0-9]*$")

API_VERSION = "v1"


class VertexConfig(RemoteConfig):
    """The settings of what is on Vertex AI."""

    publisher: ClassVar[str]
    """Whose models they are, in paths."""

    base_url: HTTPURL = ""
    """Another address than Google's own, up to the API's version."""

    project: Annotated[str, Field(pattern=r"^[a-z0-9.:-]+$")]
    """The id of the project that pays."""

    location: Annotated[str, Field(pattern=r"^[a-z0-9-]+$")] = "global"
    """Where the models run: `global`, `us`, `eu`, or a region such as `europe-west4`."""

    service_account: Path | None = None
    """The key of a service account, a file of JSON. Without it, Application Default Credentials:
    those that `GOOGLE_APPLICATION_CREDENTIALS` names, that `gcloud auth application-default login`
    has left, or that the machine is given. Needs the extra `google`."""

    @model_validator(mode="after")
    def _know_where(self) -> VertexConfig:
        if self.api_key is None and (
            message := lacking(MODULES, "to ask Google for tokens", EXTRA)
        ):
            raise ValueError(message)
        base = self.base_url or f"https://{self._host}"
        if "/projects/" not in base:
            base = base if _VERSION.search(base) else f"{base}/{API_VERSION}"
            place = f"projects/{self.project}/locations/{self.location}"
            self.base_url = f"{base}/{place}/publishers/{self.publisher}"
        return self

    @property
    def _host(self) -> str:
        return _HOSTS.get(self.location, f"{self.location}-aiplatform.googleapis.com")

    def request_credentials(self, provider: str) -> RequestCredentials[Any] | None:
        """Google's, unless there is a key."""
        return (
            None if self.api_key is not None else GoogleCredentials(provider, self.service_account)
        )
