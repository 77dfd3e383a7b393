"""Commands about the machine that they run on, and the vendors that can be reached from it."""
