"""A YAML file becomes what settings are made of, and every mistake keeps its place in it."""
