"""Where Bedrock is, and how requests to it are authorized."""

from __future__ import annotations

from typing import Any

import pytest
from pydantic import ValidationError

from providers.registry import config_model
from providers.remote.upstream.sigv4 import SigV4Credentials


def settings(**given: Any) -> Any:
    return config_model("remote::bedrock").validate(given)


@pytest.mark.parametrize(
    ("region", "url"),
    [
        ("us-east-1", "https://bedrock-runtime.us-east-1.amazonaws.com/openai/v1"),
        ("us-gov-west-1", "https://bedrock-runtime.us-gov-west-1.amazonaws.com/openai/v1"),
        ("cn-north-1", "https://bedrock-runtime.cn-north-1.amazonaws.com.cn/openai/v1"),
        ("eusc-de-east-1", "https://bedrock-runtime.eusc-de-east-1.amazonaws.eu/openai/v1"),
    ],
)
def test_a_region_says_where(region: str, url: str) -> None:
    assert settings(region=region).base_url == url


@pytest.mark.parametrize(
    ("given", "service", "region"),
    [
        ({"region": "us-east-1"}, "bedrock", "us-east-1"),
        (
            {"base_url": "https://bedrock-mantle.eu-west-1.api.aws/v1"},
            "bedrock-mantle",
            "eu-west-1",
        ),
        (
            {"base_url": "https://bedrock-runtime-fips.us-east-2.amazonaws.com/openai/v1"},
            "bedrock",
            "us-east-2",
        ),
        (
            {"base_url": "https://vpce-1.bedrock-runtime.us-west-2.vpce.amazonaws.com/openai/v1"},
            "bedrock",
            "us-west-2",
        ),
        ({"base_url": "http://localhost:1/v1", "region": "us-east-1"}, "bedrock", "us-east-1"),
    ],
)
def test_what_signatures_name(given: dict[str, Any], service: str, region: str) -> None:
    credentials = settings(**given, aws={}).request_credentials("p")
    assert isinstance(credentials, SigV4Credentials)
    assert (credentials._service, credentials._region) == (service, region)


def test_who_has_a_key_signs_nothing() -> None:
    assert settings(region="us-east-1", api_key="x").request_credentials("p") is None
    assert settings(region="us-east-1", api_key="", aws={}).request_credentials("p") is not None


@pytest.mark.parametrize(
    ("given", "why"),
    [
        ({}, "expected `region`"),
        ({"region": "Virginia"}, "region"),
        ({"region": "us-east-1", "aws": {"profle": "x"}}, "profle"),
        ({"base_url": "https://llm.example.com/v1", "aws": {}}, "signatures name it"),
        ({"region": "us-east-1", "aws": {}, "api_key": "x"}, "one of `api_key` and `aws`"),
    ],
)
def test_what_is_wrong_is_said(given: dict[str, Any], why: str) -> None:
    with pytest.raises(ValidationError, match=why):
        settings(**given)
