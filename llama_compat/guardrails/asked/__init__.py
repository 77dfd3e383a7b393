"""What checks are told that look at a text as a whole, and those of them that need no network."""
