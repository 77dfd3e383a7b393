"""The plots of the page of speed, as SVG: the same bytes of the same results, wherever made."""

from __future__ import annotations

import io
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from scripts.measured import gateway
from scripts.measured.engines import PEER, WEIGHTS
from scripts.measured.results import number, result


@dataclass(frozen=True)
class Scheme:
    """The colours of one of the site's schemes.

    Attributes:
        text: of all that is written.
        ours: of the bars that the page is about.
        others: of all other bars, one a row of bars.
    """

    text: str
    ours: str
    others: Sequence[str]


SCHEMES: Mapping[str, Scheme] = {
    "light": Scheme("#1f2430", "#3f51b5", ("#9aa3b2",)),
    "dark": Scheme("#e6e8ee", "#8c9eff", ("#6b7385",)),
}


def gateways(scheme: Scheme) -> str:
    """Requests and events a second of every gateway."""
    medians = gateway.peers()
    names = [name for name in reversed(medians) if name != "no gateway"]
    figure, axes = _figure(scheme, 2, height=4.2)
    for axis, key, title in zip(
        axes,
        ("requests_per_s", "events_per_s"),
        ("requests a second", "events of streams a second"),
        strict=True,
    ):
        values = [medians[name][key] for name in names]
        colours = [scheme.ours if name == gateway.OURS else scheme.others[0] for name in names]
        bars = axis.barh(names, values, color=colours, height=0.72)
        axis.bar_label(bars, [number(each) if each else "none" for each in values], padding=4)
        axis.set_title(title, loc="left")
        axis.set_xlim(0, max(values) * 1.22)
        _bare(axis)
    return _svg(figure)


def engines(scheme: Scheme) -> str:
    """Tokens a second of each kind of weights, beside llama.cpp."""
    found = result("engine-quantized")["results"]
    names = {**{kind: name.strip("`") for kind, name in WEIGHTS.items()}, PEER: "llama.cpp, Q4_1"}
    figure, axes = _figure(scheme, 3, height=2.5)
    for axis, key, title in zip(
        axes,
        ("decoded tokens/s at 1", "decoded tokens/s at 8", "prompt tokens/s"),
        ("1 request: tokens a second", "8 requests", "reading a prompt"),
        strict=True,
    ):
        kinds = [kind for kind in reversed(names) if kind in found[key]]
        values = [found[key][kind] for kind in kinds]
        colours = [scheme.others[0] if kind == PEER else scheme.ours for kind in kinds]
        bars = axis.barh([names[kind] for kind in kinds], values, color=colours, height=0.72)
        axis.bar_label(bars, [number(each) for each in values], padding=4)
        axis.set_title(title, loc="left")
        axis.set_xlim(0, max(values) * 1.25)
        _bare(axis)
    return _svg(figure)


PLOTS: Mapping[str, Callable[[Scheme], str]] = {"gateways": gateways, "engines": engines}
"""By name."""


def _figure(scheme: Scheme, columns: int, height: float) -> tuple[Any, Any]:
    # Without pyplot, which keeps figures and asks for a window.
    import matplotlib
    from matplotlib.figure import Figure

    matplotlib.rcdefaults()
    matplotlib.rcParams.update(
        {
            "svg.hashsalt": "llama_compat",  # or its ids are other ones each time
            "svg.fonttype": "none",  # text stays text
            "font.family": "sans-serif",
            "font.size": 11,
            "axes.titlesize": 11,
            "axes.titleweight": "bold",
            "axes.linewidth": 0,
            "text.color": scheme.text,
            "axes.labelcolor": scheme.text,
            "axes.edgecolor": scheme.text,
            "xtick.color": scheme.text,
            "ytick.color": scheme.text,
        }
    )
    figure = Figure(figsize=(10, height), layout="constrained")
    return figure, figure.subplots(1, columns, sharey=True)


def _bare(axis: Any) -> None:
    """Figures stand at the bars: no ticks, no frame."""
    axis.tick_params(left=False, bottom=False, labelbottom=False)


def _svg(figure: Any) -> str:
    written = io.StringIO()
    figure.savefig(
        written, format="svg", transparent=True, metadata={"Date": None, "Creator": None}
    )
    lines = (line.rstrip() for line in written.getvalue().splitlines())
    return "\n".join(lines) + "\n"
