"""Public model ids, aliases and discovered models."""

from collections.abc import Sequence

import pytest

from llama_compat.distribution import ModelSettings
from llama_compat.errors import APIError
from providers.base import Provider, ProviderConfig, ProviderModel
from routing.models import ModelTable


class Vendor(Provider):
    """Lists models of its own."""

    names: Sequence[str] = ()

    async def discovered_models(self) -> Sequence[str]:
        return self.names


def table(names: Sequence[str] = ()) -> ModelTable:
    local = Provider("local", ProviderConfig(), [ProviderModel("tiny", 2048)])
    vendor = Vendor("vendor", ProviderConfig(), [])
    vendor.names = names
    settings = [
        ModelSettings(id="meta/Tiny", provider="local", provider_model="tiny", aliases=["t"]),
        ModelSettings(id="big", provider="vendor", context_length=4096),
    ]
    return ModelTable(settings, {"local": local, "vendor": vendor})


async def test_listed_id_and_alias_lead_to_the_providers_own_name() -> None:
    for name in ("meta/Tiny", "t"):
        route = await table().resolve(name)
        assert (route.provider.id, route.provider_model) == ("local", "tiny")


async def test_without_a_name_of_its_own_the_provider_gets_the_public_id() -> None:
    route = await table().resolve("big")
    assert (route.provider_model, route.context_length) == ("big", 4096)


@pytest.mark.parametrize(
    ("name", "public_id"),
    [("large", "vendor/large"), ("vendor/large", "vendor/large"), ("a/b", "vendor/a/b")],
)
async def test_discovered_models_have_the_providers_id_before_them_once(
    name: str, public_id: str
) -> None:
    models = table([name])
    assert public_id in [entry["id"] for entry in await models.list()]
    assert (await models.resolve(public_id)).provider_model == name


async def test_unknown_models_are_404_and_name_what_there_is() -> None:
    for name in ("nope", "vendor/nope", "tiny", "local/tiny"):
        with pytest.raises(APIError, match="meta/Tiny, big") as raised:
            await table(["large"]).resolve(name)
        assert (raised.value.status, raised.value.code) == (404, "model_not_found")
        assert raised.value.param == "model"


async def test_list_shows_context_lengths_and_no_aliases() -> None:
    entries = {entry["id"]: entry for entry in await table().list()}
    assert list(entries) == ["meta/Tiny", "big"]
    assert entries["meta/Tiny"]["context_length"] == 2048
    assert entries["big"] == {
        "id": "big",
        "object": "model",
        "created": entries["big"]["created"],
        "owned_by": "vendor",
        "context_length": 4096,
    }


async def test_a_listed_model_hides_the_discovered_one_of_the_same_id() -> None:
    vendor = Vendor("vendor", ProviderConfig(), [])
    vendor.names = ["large"]
    settings = [ModelSettings(id="vendor/large", provider="vendor", provider_model="own")]
    models = ModelTable(settings, {"vendor": vendor})
    assert [entry["id"] for entry in await models.list()] == ["vendor/large"]
    assert (await models.resolve("vendor/large")).provider_model == "own"


async def test_get_shows_the_name_that_was_asked_for() -> None:
    assert (await table().get("t"))["id"] == "t"
