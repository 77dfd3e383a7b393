"""Layers that guess a model's next tokens from what goes on inside it: EAGLE-3's, and MTP."""
