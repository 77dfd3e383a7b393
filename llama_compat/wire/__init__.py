"""Bytes: server-sent events, JSON by lines, and JSON objects that keep the bytes they came as."""
