"""Providers whose models run in this process: what engines share, and a room for each engine."""
