"""What is kept, and where: SQLite or PostgreSQL, one module a kind of record.

`open_storage` gives the database that a template names; `database` is one SQLite file.
"""
