"""Pictures of the page for the documentation, of a server with a month behind it."""
