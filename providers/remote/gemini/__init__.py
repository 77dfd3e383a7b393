"""Gemini's own API: as a provider, and relayed for its own clients."""
