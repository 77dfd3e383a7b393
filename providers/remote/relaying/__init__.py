"""Replies on their way to a client in the client's own language: what all relays have in common."""
