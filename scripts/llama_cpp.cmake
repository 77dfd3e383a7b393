# Read by CMake right behind `project("llama.cpp")`: leave out llama.cpp's `common` library, on which
# its own programs stand and the Python bindings do not. As a plain variable it wins over the cached
# one that llama-cpp-python forces to ON.
set(LLAMA_BUILD_COMMON OFF)
