"""Media in the prompts of GGUF models: llama.cpp's multimodal library, and what it makes."""
