"""A mixture of experts in Triton: who is chosen, and what they come to."""
