"""Tools that the server runs for a model: what is asked for, what is shown, and the loop."""
