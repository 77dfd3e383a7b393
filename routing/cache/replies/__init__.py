"""Replies that are kept: what one is, how it comes there, and where it is."""
