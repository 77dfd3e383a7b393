"""EAGLE-3 heads: a layer that guesses a model's next tokens from what goes on inside the model."""
