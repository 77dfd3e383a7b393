"""The ways in: one module a client API, and what they share."""
