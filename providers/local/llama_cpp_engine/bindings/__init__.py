"""llama.cpp as llama-cpp-python binds it. No other room touches that package, but for media, by
the multimodal library that it brings."""
