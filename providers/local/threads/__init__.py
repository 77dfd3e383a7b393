"""How many threads an engine computes with on a CPU, and how they wait for each other."""
