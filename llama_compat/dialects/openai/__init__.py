"""OpenAI's API: one module an operation, what they share, and the mending of vendors' replies."""
