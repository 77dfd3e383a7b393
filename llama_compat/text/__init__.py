"""What is found in the text that a model says: markers, reasoning, stop strings."""
