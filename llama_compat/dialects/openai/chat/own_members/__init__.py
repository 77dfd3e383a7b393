"""Members of messages that are OpenAI's own, for vendors that do not know them."""
