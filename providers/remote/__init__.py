"""Providers that are reached over HTTP: what they share, and a room for each vendor's API."""
