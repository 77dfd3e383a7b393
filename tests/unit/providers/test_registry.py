from __future__ import annotations

import subprocess
import sys
from typing import Any

import pytest
from pydantic import ValidationError

from llama_compat.distribution.problems import UnknownProviderType
from providers import registry
from providers.base import Provider, ProviderConfig
from providers.remote.openai.vendors import VENDORS


@pytest.mark.parametrize("provider_type", registry.provider_types())
def test_every_type_has_a_class_and_settings(provider_type: str) -> None:
    kind = registry.provider_type(provider_type)
    assert kind == registry.provider_type(provider_type)
    served_by, settings = kind.provider, registry.config_model(provider_type)
    assert issubclass(served_by, Provider)
    assert issubclass(settings.model, served_by.Config)
    assert issubclass(settings.model, ProviderConfig)
    assert settings.model.model_config["extra"] == "forbid"


@pytest.mark.parametrize(
    "provider_type", [name for name, vendor in VENDORS.items() if vendor.base_url]
)
def test_a_vendors_row_is_the_default(provider_type: str) -> None:
    settings = registry.config_model(provider_type).validate({"api_key": "key"})
    assert settings.model_dump()["base_url"] == VENDORS[provider_type].base_url


@pytest.mark.parametrize(
    "settings",
    [
        {"api_key": "first\nsecond"},
        {"headers": {"x-title": "a\r\nx-other: b"}},
        {"headers": {"x title": "a"}},
        {"headers": {"": "a"}},
    ],
)
def test_what_can_not_be_a_header_is_told_at_the_start(settings: dict[str, Any]) -> None:
    with pytest.raises(ValidationError, match="expected"):
        registry.config_model("remote::openai").validate(settings)


def test_blanks_around_a_key_do_no_harm() -> None:
    registry.config_model("remote::openai").validate(
        {"api_key": " key\n", "headers": {"x-title": " caf\u00e9\n"}}
    )


def test_settings_are_shown_without_secrets() -> None:
    secret = "sk-0123456789"
    settings = registry.config_model("remote::openai").validate(
        {
            "api_key": secret,
            "headers": {"x-key": secret},
            "proxy": f"http://me:{secret}@proxy:3128",
        }
    )
    assert secret not in f"{settings!r} {settings}"
    for wrong in (
        {"api_key": [secret]},
        {"headers": {"x-key": f"{secret}\n{secret}"}},
        {"proxy": f"socks5://me:{secret}@proxy"},
        {"base_url": f"https://me:{secret}@api.example.com"},
    ):
        with pytest.raises(ValidationError) as raised:
            registry.config_model("remote::openai").validate(wrong)
        assert secret not in f"{raised.value!r} {raised.value}"


def test_types_have_the_form_place_and_name() -> None:
    types = registry.provider_types()
    assert types == sorted(set(types))
    assert {name.partition("::")[0] for name in types} == {"local", "remote"}


def test_an_unknown_type_is_told_the_nearest() -> None:
    with pytest.raises(UnknownProviderType) as raised:
        registry.config_model("remote::opnai")
    assert str(raised.value) == (
        "unknown provider type 'remote::opnai'; did you mean 'remote::openai'?"
    )
    with pytest.raises(UnknownProviderType) as raised:
        registry.provider_type("local::ehco")
    assert "did you mean 'local::echo'?" in str(raised.value)


def loaded_modules(code: str) -> set[str]:
    """The modules that a fresh interpreter has loaded after `code`."""
    code += "; import sys; print(*sys.modules)"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    return set(done.stdout.split())


HEAVY = {"torch", "transformers", "llama_cpp", "openai", "huggingface_hub"}


def test_the_table_itself_imports_no_provider() -> None:
    modules = loaded_modules("import providers.registry")
    own = {"httptools", "providers.local.echo", "providers.remote.openai.provider"}
    assert not modules & (HEAVY | own)


def test_a_type_imports_its_own_module_and_no_other() -> None:
    modules = loaded_modules("from providers.registry import config_model as c; c('local::echo')")
    assert "providers.local.echo" in modules
    assert not modules & (HEAVY | {"httptools", "providers.remote.openai.provider"})


@pytest.mark.parametrize("provider_type", ["local::torch", "remote::openai"])
def test_settings_import_nothing_heavy(provider_type: str) -> None:
    code = f"from providers.registry import config_model as c; c({provider_type!r})"
    assert not loaded_modules(code) & HEAVY
