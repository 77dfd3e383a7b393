"""Chat templates, which are programs that came with a model, rendered where they can be ended."""
