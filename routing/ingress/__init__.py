"""The ways in: `apis` with one module a client API, and what they share."""
