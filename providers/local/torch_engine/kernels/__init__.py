"""Triton kernels for what a forward pass does between its matrix products, and for sampling."""
