"""vLLM's server: what it says of its KV cache over ZeroMQ, turned into what a gateway knows prompts
by."""
