"""The forward pass: a decoder's layers, attention over the paged cache, other architectures."""
