"""Files that clients upload: one store, and each API's own way to it."""
