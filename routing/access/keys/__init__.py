"""The keys that let people in: how they are made, where they are kept, what each of them opens."""
