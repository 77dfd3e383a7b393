"""Tokens made into replies: text, tool calls, and the grammars that hold a model to them."""
