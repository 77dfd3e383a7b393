"""The page at `/`: its files, the routes that serve them, and what only the page asks for."""
