"""What is kept in SQLite, one module a kind of record."""
