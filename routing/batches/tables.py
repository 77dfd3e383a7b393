"""The tables of files and batches."""

from __future__ import annotations

from routing.storage.storage import Migrations

MIGRATIONS = Migrations(
    "batches",
    [
        [
            "CREATE TABLE files (id TEXT PRIMARY KEY, owner TEXT NOT NULL, filename TEXT NOT NULL,"
            " purpose TEXT NOT NULL, bytes BIGINT NOT NULL, created DOUBLE PRECISION NOT NULL,"
            " expires DOUBLE PRECISION)",
            "CREATE INDEX files_by_owner ON files (owner, created)",
            "CREATE INDEX files_by_expiry ON files (expires)",
            # A batch. `api` is whose client made it: openai, messages or command. `claimed_by` is
            # the worker that checks its input, or puts its output together.
            "CREATE TABLE batches (id TEXT PRIMARY KEY, api TEXT NOT NULL, owner TEXT NOT NULL,"
            " endpoint TEXT NOT NULL, input_file TEXT NOT NULL, completion_window TEXT NOT NULL,"
            " metadata {blob} NOT NULL, output_seconds BIGINT, created DOUBLE PRECISION NOT NULL,"
            " expires DOUBLE PRECISION NOT NULL, status TEXT NOT NULL, claimed_by TEXT,"
            " begun DOUBLE PRECISION, finalizing DOUBLE PRECISION, ended DOUBLE PRECISION,"
            " cancelling DOUBLE PRECISION, reason TEXT, model TEXT, total BIGINT NOT NULL,"
            " completed BIGINT NOT NULL, failed BIGINT NOT NULL, undone BIGINT NOT NULL,"
            " cost BIGINT NOT NULL, unpriced BIGINT NOT NULL, output_file TEXT, error_file TEXT,"
            " errors {blob})",
            "CREATE INDEX batches_by_owner ON batches (owner, api, created)",
            "CREATE INDEX batches_by_status ON batches (status)",
            # One line of a batch: where it is in the input, and how far it has come. `worker` has
            # asked it, and nobody else may; `free` is whether it may be asked again.
            "CREATE TABLE batch_lines (batch TEXT NOT NULL, number BIGINT NOT NULL,"
            " begins BIGINT NOT NULL, size BIGINT NOT NULL, model TEXT NOT NULL,"
            " state BIGINT NOT NULL, worker TEXT, free BIGINT,"
            " PRIMARY KEY (batch, number))",
            "CREATE INDEX batch_lines_by_state ON batch_lines (batch, state, number)",
            "CREATE INDEX batch_lines_by_worker ON batch_lines (worker, batch)",
            "CREATE TABLE batch_results (batch TEXT NOT NULL, number BIGINT NOT NULL,"
            " good BIGINT NOT NULL, result {blob} NOT NULL, PRIMARY KEY (batch, number))",
            # Who works on batches; what it has asked is its own until then.
            # `only_job` is the batch that a command works on; empty for servers.
            "CREATE TABLE batch_workers (id TEXT PRIMARY KEY, only_job TEXT NOT NULL,"
            " alive_until DOUBLE PRECISION NOT NULL)",
        ],
        [
            # Lines that vendors' own batches answer. `handed` is the order that a line is a part
            # of; `elsewhere` counts the lines of a batch that vendors have answered, as far as they
            # tell, and nobody has read here.
            "ALTER TABLE batches ADD COLUMN elsewhere BIGINT NOT NULL DEFAULT 0",
            "ALTER TABLE batch_lines ADD COLUMN handed TEXT",
            "CREATE INDEX batch_lines_by_order ON batch_lines (handed, number)",
            # An order: lines of one batch that a vendor is asked to work on, or is about to be.
            # `worker` sees to it, and nobody else may. Times are in seconds since 1970.
            "CREATE TABLE batch_orders (id TEXT PRIMARY KEY, batch TEXT NOT NULL,"
            " route TEXT NOT NULL, provider TEXT NOT NULL, model TEXT NOT NULL,"
            " state TEXT NOT NULL, worker TEXT, made DOUBLE PRECISION NOT NULL,"
            " endpoint TEXT NOT NULL, headers {blob} NOT NULL, lines BIGINT NOT NULL,"
            " reserve BIGINT NOT NULL, input_file TEXT NOT NULL, asked DOUBLE PRECISION NOT NULL,"
            " vendor_batch TEXT NOT NULL, is_cancelled BIGINT NOT NULL, done BIGINT NOT NULL,"
            " cost BIGINT NOT NULL)",
            "CREATE INDEX batch_orders_by_batch ON batch_orders (batch)",
            "CREATE INDEX batch_orders_by_worker ON batch_orders (worker)",
        ],
        [
            "ALTER TABLE files ADD COLUMN media_type TEXT NOT NULL"
            " DEFAULT 'application/octet-stream'",
        ],
    ],
)
