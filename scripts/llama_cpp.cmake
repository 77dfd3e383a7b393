# Read by CMake right behind `project("llama.cpp")`: leave out llama.cpp's `common` library, on which
# its own programs stand and the Python bindings do not. As a plain variable it wins over the cached
# one that llama-cpp-python forces to ON.
set(LLAMA_BUILD_COMMON OFF)

# Leave out llama.cpp's code for AMX, which `-march=native` brings in on Intel's CPUs that have it:
# gcc 11 and 12 drop what is stored for `ldtilecfg` to read, and no thread but the first asks the
# kernel for tiles, so that the first prompt ends the process
# (https://github.com/ggml-org/llama.cpp/issues/20824, https://github.com/ggml-org/llama.cpp/pull/26954).
# The macro is what all of that code asks for, and without it nothing can be told to bring it back:
# a later `-mamx-int8` would win over `-mno-amx-int8`.
if(NOT MSVC)
    add_compile_options("$<$<COMPILE_LANGUAGE:C,CXX>:-U__AMX_INT8__>")
endif()

# What the fifty files of its multimodal library include is read by the compiler once, and not by each,
# as most of them are short. Two may not see it. There is no target of that name yet.
function(llama_compat_share_headers)
    if(NOT TARGET mtmd)
        return()
    endif()
    set(folder "${CMAKE_SOURCE_DIR}/vendor/llama.cpp/tools/mtmd")
    target_precompile_headers(mtmd PRIVATE "${folder}/models/models.h")
    set_source_files_properties("${folder}/mtmd-helper.cpp" "${folder}/mtmd-helper-gen.cpp"
        TARGET_DIRECTORY mtmd PROPERTIES SKIP_PRECOMPILE_HEADERS ON)
endfunction()
cmake_language(DEFER DIRECTORY "${CMAKE_SOURCE_DIR}" CALL llama_compat_share_headers)
