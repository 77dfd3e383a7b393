"""Pictures in this engine's prompts: how a model takes them, what it sees, and where that goes.

transformers' own image processors and vision towers make numbers of a picture, once; the tokens
that stand for its parts get these in place of embeddings.
"""
