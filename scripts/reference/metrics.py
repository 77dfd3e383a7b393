"""Every metric."""

from __future__ import annotations

from typing import Any

from prometheus_client.metrics import MetricWrapperBase

from routing.observability.telemetry.metrics import Metrics
from scripts.reference.markdown import code, codes, table
from scripts.reference.markdown import page as page_of

INTRODUCTION = """\
`metrics: true` under `server:` opens `GET /metrics` for Prometheus. It needs the extra `metrics`:
`pip install 'llama-compat[metrics]'`. [Metrics in Grafana](../guides/metrics.md) has the way there.

Labels come from the template alone, never from what clients send: a model is its id in the
template, and what a vendor lists is `provider/*`. Counters end in `_total`."""


def page() -> str:
    """The metrics."""
    found = [each for each in vars(Metrics(shared=False)).values() if _is_metric(each)]
    genai = [each for each in found if each._name.startswith("gen_ai")]
    own = [each for each in found if each not in genai]
    return page_of(
        "Metrics",
        INTRODUCTION,
        "## OpenTelemetry's\n\nTheir names and buckets are those of the semantic conventions for"
        " generative AI.",
        _table(genai),
        "## This server's",
        _table(own),
    )


def _is_metric(value: object) -> bool:
    return isinstance(value, MetricWrapperBase)


def _table(metrics: list[Any]) -> str:
    rows = [
        (code(_name(each)), each._type, codes(each._labelnames), each._documentation)
        for each in metrics
    ]
    return table(("metric", "type", "labels", "what it is"), rows)


def _name(metric: Any) -> str:
    return f"{metric._name}_total" if metric._type == "counter" else str(metric._name)
