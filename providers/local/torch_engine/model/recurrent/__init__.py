"""Layers that keep a state of each sequence, and nothing of each token."""
