"""The process that serves: its start and end, its signals, its workers, its reloads; and programs
that it runs for a while."""
