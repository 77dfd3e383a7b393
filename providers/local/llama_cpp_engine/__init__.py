"""GGUF models in this process, by llama.cpp: requests share its batches and its KV cache."""
