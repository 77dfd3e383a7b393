"""Places for replies that other processes have too: Redis, and the storage of the template."""
