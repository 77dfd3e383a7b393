"""Requests made into prompt tokens: chat templates, control tokens."""
