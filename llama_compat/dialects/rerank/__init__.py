"""Rerank: how much each document has to do with a query.

Cohere's API is what others took over, Jina, Together, OpenRouter, vLLM and llama.cpp among them;
Voyage has other names for two of its members.
"""
