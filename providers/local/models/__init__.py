"""Models on this machine: where they lie, and how they get there."""
