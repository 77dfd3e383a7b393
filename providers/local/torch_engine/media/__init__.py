"""Media in this engine's prompts: how a model takes them, what it reads, and where that goes.

transformers' own processors and towers make numbers of a picture or of audio, once; the tokens
that stand for its parts get these in place of embeddings.
"""
