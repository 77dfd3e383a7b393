"""Public model ids, aliases and discovered models."""

import time
from collections.abc import Sequence

import pytest

from llama_compat.distribution import ModelSettings, RoutingSettings
from llama_compat.errors import APIError
from llama_compat.exchange import Principal, Target
from providers.base import Provider, ProviderConfig, ProviderModel
from routing.models import ModelTable


class Vendor(Provider):
    """Lists models of its own."""

    names: Sequence[str] = ()

    def discovered_models(self) -> Sequence[str]:
        return self.names


class Local(Provider):
    """Knows how much its models hold."""

    context = 2048

    def context_length(self, model: str) -> int | None:
        return self.context


def table(names: Sequence[str] = ()) -> ModelTable:
    local = Local("local", ProviderConfig(), [ProviderModel("tiny")])
    vendor = Vendor("vendor", ProviderConfig(), [])
    vendor.names = names
    settings = [
        ModelSettings(id="meta/Tiny", provider="local", provider_model="tiny", aliases=["t"]),
        ModelSettings(id="big", provider="vendor", context_length=4096),
    ]
    return ModelTable(settings, {"local": local, "vendor": vendor})


async def test_listed_id_and_alias_lead_to_the_providers_own_name() -> None:
    for name in ("meta/Tiny", "t"):
        route = table().look_up(name)
        assert (route.provider.id, route.target.model) == ("local", "tiny")


async def test_without_a_name_of_its_own_the_provider_gets_the_public_id() -> None:
    route = table().look_up("big")
    assert (route.target.model, route.context_length) == ("big", 4096)


@pytest.mark.parametrize(
    ("name", "public_id"),
    [("large", "vendor/large"), ("vendor/large", "vendor/large"), ("a/b", "vendor/a/b")],
)
async def test_discovered_models_have_the_providers_id_before_them_once(
    name: str, public_id: str
) -> None:
    models = table([name])
    assert public_id in [entry.id for entry in await models.list()]
    assert (models.look_up(public_id)).target.model == name


async def test_unknown_models_are_404_and_name_what_there_is() -> None:
    for name in ("nope", "vendor/nope", "tiny", "local/tiny"):
        with pytest.raises(APIError, match="meta/Tiny, t, big") as raised:
            table(["large"]).look_up(name)
        assert (raised.value.status, raised.value.code) == (404, "model_not_found")
        assert raised.value.param == "model"


async def test_list_shows_context_lengths_and_aliases() -> None:
    entries = {entry.id: entry for entry in await table().list()}
    assert list(entries) == ["meta/Tiny", "t", "big"]
    assert entries["meta/Tiny"].context_length == entries["t"].context_length == 2048
    big = entries["big"]
    assert (big.owned_by, big.context_length) == ("vendor", 4096)
    assert abs(big.created - time.time()) < 60


@pytest.mark.parametrize(
    ("templates", "own", "shown"), [(4096, 2048, 2048), (1024, 2048, 1024), (None, 2048, 2048)]
)
async def test_the_lesser_context_length_counts(
    templates: int | None, own: int, shown: int
) -> None:
    settings = [ModelSettings(id="a", provider="local", context_length=templates)]
    models = ModelTable(settings, {"local": Local("local", ProviderConfig(), [])})
    assert own == Local.context
    assert (await models.get("a")).context_length == shown


async def test_two_models_of_one_have_a_context_each() -> None:
    settings = [
        ModelSettings(id=name, provider="local", provider_model="tiny", context_length=length)
        for name, length in (("small", 100), ("large", 200))
    ]
    models = ModelTable(settings, {"local": Local("local", ProviderConfig(), [])})
    found = [(models.look_up(name)).target for name in ("small", "large")]
    assert found == [Target("tiny", 100), Target("tiny", 200)]


async def test_a_listed_model_hides_the_discovered_one_of_the_same_id() -> None:
    vendor = Vendor("vendor", ProviderConfig(), [])
    vendor.names = ["large"]
    settings = [ModelSettings(id="vendor/large", provider="vendor", provider_model="own")]
    models = ModelTable(settings, {"vendor": vendor})
    assert [entry.id for entry in await models.list()] == ["vendor/large"]
    assert (models.look_up("vendor/large")).target.model == "own"


async def test_get_shows_the_name_that_was_asked_for() -> None:
    assert (await table().get("t")).id == "t"


def with_targets(**routing: object) -> ModelTable:
    local = Local("local", ProviderConfig(), [ProviderModel("tiny")])
    vendor = Vendor("vendor", ProviderConfig(), [])
    settings = [
        ModelSettings.model_validate(
            {
                "id": "smart",
                "aliases": ["s"],
                "targets": [
                    {"provider": "vendor", "model": "big", "weight": 3, "context_length": 9000},
                    {"model": "small", "priority": 1},
                ],
            }
        ),
        ModelSettings(id="small", provider="local", provider_model="tiny", context_length=1000),
    ]
    rules = RoutingSettings.model_validate(routing) if routing else None
    return ModelTable(settings, {"local": local, "vendor": vendor}, rules)


async def test_a_model_of_several_targets_has_them_in_order_and_policies() -> None:
    models = with_targets()
    route = models.look_up("s")
    assert [(each.id, each.weight, each.priority) for each in route.targets] == [
        ("vendor/big", 3, 0),
        ("local/tiny", 1, 1),
    ]
    assert route.policy is not None
    assert (route.limit, route.context_length) == (9000, 9000)
    assert models.describe("smart", route).owned_by == "vendor"
    small = models.look_up("small")
    assert small.policy is None
    assert small.limit == 1000
    assert small.targets[0].state is route.targets[1].state  # one place, whoever leads to it


async def test_policies_for_all_models_are_those_of_a_model_with_one_target_too() -> None:
    route = with_targets(deadline=5).look_up("small")
    assert route.policy is not None
    assert route.policy.settings.deadline == 5


async def test_nobody_knows_the_room_of_a_model_if_one_target_has_no_limit() -> None:
    vendor = Vendor("vendor", ProviderConfig(), [])
    settings = ModelSettings.model_validate(
        {
            "id": "m",
            "targets": [
                {"provider": "vendor", "model": "x", "context_length": 9},
                {"provider": "vendor", "model": "y"},
            ],
        }
    )
    route = ModelTable([settings], {"vendor": vendor}).look_up("m")
    assert (route.limit, route.context_length) == (None, None)


# --------------------------------------------------------------------------------------------------
# Patterns
# --------------------------------------------------------------------------------------------------


def with_patterns(names: Sequence[str] = ()) -> ModelTable:
    vendor = Vendor("vendor", ProviderConfig(), [])
    vendor.names = names
    settings = [
        ModelSettings(id=id, provider="vendor", aliases=aliases)
        for id, aliases in (
            ("small", ["claude-*", "vendor/*"]),
            ("big", ["claude-opus-*", "*-latest", "best"]),
            ("claude-opus-4-1", []),
            ("old", ["gemini-*-pro", "gemini-1*5[1m]"]),
        )
    ]
    return ModelTable(settings, {"vendor": vendor})


@pytest.mark.parametrize(
    ("asked", "model"),
    [
        ("claude-sonnet-5", "small"),
        ("claude-", "small"),
        ("claude-opus-4-8", "big"),
        ("claude-opus-4-1", "claude-opus-4-1"),
        ("claude-latest", "small"),
        ("gpt-latest", "big"),
        ("gemini-2.5-pro", "old"),
        ("gemini-1.5[1m]", "old"),
        ("vendor/listed", "vendor/*"),
        ("vendor/other", "small"),
    ],
)
async def test_a_name_counts_for_more_than_a_pattern_and_letters_for_more_than_few(
    asked: str, model: str
) -> None:
    assert (with_patterns(["listed"]).look_up(asked)).name == model


@pytest.mark.parametrize(
    "asked", ["Claude-x", "claude", "gemini-pro", "gemini-2.5-pro-x", "gemini-15", "claude-" * 100]
)
async def test_what_no_pattern_stands_for(asked: str) -> None:
    with pytest.raises(APIError) as raised:
        with_patterns().look_up(asked)
    assert raised.value.code == "model_not_found"
    assert "*" not in raised.value.message


async def test_patterns_are_no_names_but_what_they_stand_for_is_told() -> None:
    models = with_patterns()
    listed = [entry.id for entry in await models.list()]
    assert listed == ["small", "big", "best", "claude-opus-4-1", "old"]
    assert (await models.get("claude-opus-4-8")).id == "claude-opus-4-8"


async def test_the_tag_that_goes_without_saying_is_left_out_before_a_pattern_is_tried() -> None:
    models = with_patterns()
    for asked in ("small:latest", "best:latest", "claude-opus-4-1:latest"):
        name = asked.removesuffix(":latest")
        route = models.look_up(asked, others=[name])
        assert route is models.look_up(name)


@pytest.mark.parametrize(
    ("patterns", "open_names", "closed"),
    [
        (("small",), ["small", "claude-sonnet-5"], ["claude-opus-4-8", "best", "claude-opus-4-1"]),
        (("best",), ["best", "big", "claude-opus-4-8"], ["small", "claude-sonnet-5"]),
        # What a client calls a model says nothing of what it may use.
        (("claude-*",), ["claude-opus-4-1"], ["claude-opus-4-8", "claude-sonnet-5", "small"]),
        (("vendor/*",), ["vendor/listed"], ["vendor/other", "small"]),
    ],
)
async def test_a_key_opens_the_model_that_is_meant(
    patterns: tuple[str, ...], open_names: list[str], closed: list[str]
) -> None:
    models, somebody = with_patterns(["listed"]), Principal("key-1", models=patterns)
    for name in open_names:
        models.look_up(name, somebody).check_open_to(somebody, name)
    for name in closed:
        with pytest.raises(APIError) as raised:
            models.look_up(name, somebody).check_open_to(somebody, name)
        assert (raised.value.status, raised.value.code) == (403, "model_not_allowed")
        with pytest.raises(APIError) as raised:
            await models.get(name, somebody)
        assert (raised.value.status, raised.value.code) == (404, "model_not_found")
    listed = [entry.id for entry in await models.list(somebody)]
    assert set(listed) <= set(open_names)


async def test_a_restricted_key_is_told_of_no_other_models() -> None:
    models = with_patterns(["listed"])
    with pytest.raises(APIError) as raised:
        models.look_up("none", Principal("key-1", models=("old",)))
    assert raised.value.message == "The model 'none' does not exist. Available: old."
    with pytest.raises(APIError) as raised:
        models.look_up("none", Principal("key-2", models=("nothing",)))
    assert raised.value.message == "The model 'none' does not exist."
