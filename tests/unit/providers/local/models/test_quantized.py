"""What configs say of how weights are quantized, wherever they say it."""

from __future__ import annotations

from providers.local.models.quantized import READ, method_of, settings_of


def test_where_a_config_says_it() -> None:
    inner = {"quant_method": "fp8"}
    assert settings_of({"quantization_config": inner}) == inner
    assert settings_of({"text_config": {"quantization_config": inner}}) == inner
    assert settings_of({"compression_config": inner, "text_config": None}) == inner
    assert settings_of({"quantization_config": None, "text_config": "odd"}) is None
    assert settings_of({}) is None


def test_what_it_is_called() -> None:
    assert method_of({"quant_method": "hqq"}) == "hqq"
    assert method_of({"load_in_8bit": True}) == "bitsandbytes"
    assert method_of({"config_groups": {}}) == "compressed-tensors"
    assert method_of({"bits": 4}) not in READ
