"""Kernels for x86 CPUs, compiled by LLVM for the one at hand when a model is loaded.

`code` is the language that they are written in, `machine_code` compiles it, and `library` runs it
on torch's own team of threads. The others are the kernels: `products`, `rows`, `attention`, and
`layer`, which is made of them. `step` puts them in the place of PyTorch's operations.
"""
