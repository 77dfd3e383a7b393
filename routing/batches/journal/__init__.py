"""The journal of batches: which line has come how far, and whose it is meanwhile."""
