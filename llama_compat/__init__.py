"""llama_compat: one OpenAI-compatible endpoint for every model."""

__version__ = "0.1.0"
