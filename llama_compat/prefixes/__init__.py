"""What prompts have in common, block by block, and which of them a KV cache holds.

A gateway knows a prompt as the client wrote it, an engine as tokens. What they tell each other of
it are blocks of the client's own bytes (`chain`): the engine works out which of its tokens each
block stands for (`marks`), and says of each whether all of those are in its cache (`held`). So the
gateway needs no tokenizer and no chat template, a block of 512 bytes takes 8 bytes on the way, and
what is told is no guess (`docs/adr/0009-caches-told-in-characters.md`).
"""
