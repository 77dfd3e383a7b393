"""Tools that the server runs for models: what each does, and which of them a request gets."""
