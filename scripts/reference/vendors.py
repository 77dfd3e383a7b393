"""The vendors whose API is OpenAI's, from their rows."""

from __future__ import annotations

from providers.remote.openai.vendor import Vendor
from providers.remote.openai.vendors import VENDORS
from scripts.reference.markdown import code, codes, table
from scripts.reference.markdown import page as page_of

INTRODUCTION = """\
A vendor whose API is OpenAI's is a row of `providers/remote/openai/vendors.py`; this is the table.
A request is relayed to it as it comes, but for the model's name and for what its row says.
Providers that speak something else are in [what providers honour](parameters.md).

A field that a vendor refuses, or ignores, is answered with 400 and its name here; with
`unsupported: drop` it is left out, and named in the header `x-llama-compat-dropped`, and with
`unsupported: adapt` it is if it is [a mere wish](../concepts/models.md). For
`remote::passthrough`, which stands for any other server, `base_url` has to be given.

The last column has the paths that [its own batches](../guides/batches.md) take."""


def page() -> str:
    """The vendors."""
    rows = [_row(type, vendor) for type, vendor in sorted(VENDORS.items())]
    head = ("type", "vendor", "where it is", "key", "relays", "renames", "refuses", "batches")
    return page_of("Vendors", INTRODUCTION, table(head, rows))


def _row(type: str, vendor: Vendor) -> tuple[str, ...]:
    key = code(vendor.key_variable)
    if not vendor.needs_key:
        key = f"{key}, if it wants one" if key else "only if you gave it one"
    renamed = ", ".join(f"`{one}` to `{other}`" for one, other in sorted(vendor.renamed.items()))
    where = code(vendor.base_url or "") or "your own"
    return (
        code(type),
        vendor.name if type != "remote::passthrough" else "any other",
        where,
        key,
        codes(sorted(vendor.wires)),
        renamed,
        codes(sorted(vendor.refused)),
        "" if vendor.batches is None else codes(sorted(vendor.batches.endpoints)),
    )
