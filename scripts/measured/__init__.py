"""The pages of what was measured, made of the results that are committed: `make measured`.

A page is a function that gives its text, and a plot one that gives an SVG; `pages` lists them.
Nothing is measured here: that is `python -m scripts.conformance` and the programs in `bench/`.
"""
