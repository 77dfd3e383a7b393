"""Responses and interactions that are kept: gone on from, made in the background, asked for."""
