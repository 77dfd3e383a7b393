"""Anthropic's Messages API: as a provider, and relayed for its own clients."""
