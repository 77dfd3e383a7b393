"""A model folder made into a model that runs: weights, what is kept of them, kernels tried."""
