"""Weights as people have them: formats of quantized checkpoints, read into plain numbers."""
