"""The tables of vector stores."""

from __future__ import annotations

from routing.storage.storage import Migrations

MIGRATIONS = Migrations(
    "vector_stores",
    [
        [
            # `active` is when something was last done with it; `model` makes its vectors.
            "CREATE TABLE vector_stores (id TEXT PRIMARY KEY, owner TEXT NOT NULL,"
            " name TEXT NOT NULL, description TEXT, metadata {blob} NOT NULL, expires_days BIGINT,"
            " created DOUBLE PRECISION NOT NULL, active DOUBLE PRECISION NOT NULL,"
            " model TEXT NOT NULL)",
            "CREATE INDEX vector_stores_by_owner ON vector_stores (owner, created)",
            # A file in a store. One that was taken out stays as `deleted` until its pieces are
            # gone. Whoever works on it has `claimed_by`, and nobody else may before `free_from`.
            "CREATE TABLE vector_store_files (entry {identity}, store TEXT NOT NULL,"
            " file TEXT NOT NULL, owner TEXT NOT NULL, filename TEXT NOT NULL,"
            " status TEXT NOT NULL, error_code TEXT, error TEXT, attributes {blob} NOT NULL,"
            " chunk_tokens BIGINT NOT NULL, overlap_tokens BIGINT NOT NULL,"
            " created DOUBLE PRECISION NOT NULL, batch TEXT, bytes BIGINT NOT NULL,"
            " chunks BIGINT NOT NULL, claimed_by TEXT, free_from DOUBLE PRECISION NOT NULL,"
            " attempts BIGINT NOT NULL)",
            "CREATE UNIQUE INDEX vector_store_files_once ON vector_store_files (store, file)"
            " WHERE status <> 'deleted'",
            "CREATE INDEX vector_store_files_by_status ON vector_store_files (status, free_from)",
            "CREATE INDEX vector_store_files_by_owner ON vector_store_files (owner)",
            "CREATE INDEX vector_store_files_by_batch ON vector_store_files (batch)",
            "CREATE INDEX vector_store_files_by_file ON vector_store_files (file)",
            "CREATE TABLE vector_store_batches (id TEXT PRIMARY KEY, store TEXT NOT NULL,"
            " owner TEXT NOT NULL, created DOUBLE PRECISION NOT NULL, cancelled BIGINT NOT NULL)",
            "CREATE INDEX vector_store_batches_by_store ON vector_store_batches (store)",
            # A piece: `begins` is its place in the text of the file, in characters.
            "CREATE TABLE vector_store_chunks (id {identity}, store TEXT NOT NULL,"
            " entry BIGINT NOT NULL, number BIGINT NOT NULL, begins BIGINT NOT NULL,"
            " text TEXT NOT NULL, embedding {vector} NOT NULL)",
            "CREATE UNIQUE INDEX vector_store_chunks_of_file"
            " ON vector_store_chunks (entry, number)",
            # The words of the pieces. In SQLite the store is a column of them, so that those of
            # others are not gone through.
            "{only_sqlite}CREATE VIRTUAL TABLE vector_store_words USING fts5(store, text,"
            " content='vector_store_chunks', content_rowid='id')",
            "{only_sqlite}CREATE TRIGGER vector_store_words_come AFTER INSERT"
            " ON vector_store_chunks BEGIN INSERT INTO vector_store_words (rowid, store, text)"
            " VALUES (new.id, new.store, new.text); END",
            "{only_sqlite}CREATE TRIGGER vector_store_words_go AFTER DELETE"
            " ON vector_store_chunks BEGIN INSERT INTO vector_store_words (vector_store_words,"
            " rowid, store, text) VALUES ('delete', old.id, old.store, old.text); END",
            "{only_postgres}ALTER TABLE vector_store_chunks ADD COLUMN words TSVECTOR"
            " GENERATED ALWAYS AS (to_tsvector('simple', text)) STORED",
            "{only_postgres}CREATE INDEX vector_store_chunks_by_word ON vector_store_chunks"
            " USING gin (words)",
        ]
    ],
)
