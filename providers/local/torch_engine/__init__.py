"""`local::torch`: Hugging Face models in this process, many requests at a time, on CPU or CUDA."""
