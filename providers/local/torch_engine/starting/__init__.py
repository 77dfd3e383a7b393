"""What a start does before torch is there, and beside its import, which keeps one core busy."""
