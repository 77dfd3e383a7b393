"""Replies that are kept and given again: by what they are found, how long they stay, and requests
that are the same at the same time. `routing.layers.cache` is the layer that has it."""
