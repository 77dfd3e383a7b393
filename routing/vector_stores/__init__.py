"""Vector stores: texts of files in pieces, which are found by their words and what they mean.

Nothing here knows of HTTP. `stores` has the stores and the room `entries` their files; `indexer`
makes pieces of files (`extraction`, `formats`, `chunking`) and has vectors made of these
(`embedding`); `search` finds them again (`candidates`, `fusion`).
"""
