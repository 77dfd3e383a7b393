"""The tools of chat requests: which there are, and which of them the model may call."""
