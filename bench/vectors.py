"""What finding the nearest vectors of SQLite costs: numpy, as we do it, beside sqlite-vec.

    pip install sqlite-vec pysqlite3-binary
    python -m bench.vectors [--vectors 100000] [--size 384] [--queries 20]

All of them look through every vector, and have to find the same ones. `numpy_held` has the vectors
in memory, `numpy_read` reads them from the file for each question, `vec_function` sorts the same
rows by sqlite-vec's `vec_distance_cosine`, and `vec_table` asks a table of sqlite-vec's own (vec0).
The page cache of the machine is warm. Python's own `sqlite3` is often built without extensions, so
`pysqlite3` stands in for it. Writes `bench/results/vectors.json`.
"""

from __future__ import annotations

import argparse
import statistics
import tempfile
import time
from collections.abc import Callable
from importlib import import_module
from pathlib import Path

import numpy as np

from bench.machine import write_results
from routing.vector_stores.candidates import Vectors, normalized

NEAREST = 50


def measure(count: int, size: int, queries: int) -> dict[str, dict[str, float]]:
    """The median and the slowest of `queries` questions, in milliseconds, of each way.

    Raises:
        RuntimeError: two ways found different vectors.
    """
    sqlite3 = import_module("pysqlite3")
    sqlite_vec = import_module("sqlite_vec")

    random = np.random.default_rng(7)
    vectors = normalized(random.standard_normal((count, size)).tolist())
    asked = normalized(random.standard_normal((queries, size)).tolist())
    with tempfile.TemporaryDirectory() as folder:
        database = sqlite3.connect(str(Path(folder) / "vectors.sqlite"))
        database.enable_load_extension(True)
        sqlite_vec.load(database)
        database.execute("CREATE TABLE plain (id INTEGER PRIMARY KEY, vector BLOB)")
        database.execute(
            f"CREATE VIRTUAL TABLE own USING vec0(vector float[{size}] distance_metric=cosine)"
        )
        rows = [(at, each.tobytes()) for at, each in enumerate(vectors, 1)]
        database.executemany("INSERT INTO plain VALUES (?, ?)", rows)
        database.executemany("INSERT INTO own(rowid, vector) VALUES (?, ?)", rows)
        database.commit()
        del rows

        def nearest(held: Vectors, vector: Vectors) -> set[int]:
            alike = held @ vector
            return {int(at) + 1 for at in np.argpartition(-alike, NEAREST)[:NEAREST]}

        def numpy_read(vector: Vectors) -> set[int]:
            found = database.execute("SELECT vector FROM plain ORDER BY id").fetchall()
            joined = b"".join(each for (each,) in found)
            return nearest(np.frombuffer(joined, "<f4").reshape(-1, size), vector)

        def vec_function(vector: Vectors) -> set[int]:
            found = database.execute(
                "SELECT id FROM plain ORDER BY vec_distance_cosine(vector, ?) LIMIT ?",
                (vector.tobytes(), NEAREST),
            )
            return {each for (each,) in found}

        def vec_table(vector: Vectors) -> set[int]:
            found = database.execute(
                "SELECT rowid FROM own WHERE vector MATCH ? AND k = ?", (vector.tobytes(), NEAREST)
            )
            return {each for (each,) in found}

        ways: dict[str, Callable[[Vectors], set[int]]] = {
            "numpy_held": lambda vector: nearest(vectors, vector),
            "numpy_read": numpy_read,
            "vec_function": vec_function,
            "vec_table": vec_table,
        }
        taken: dict[str, list[float]] = {name: [] for name in ways}
        for vector in asked:
            answers = []
            for name, way in ways.items():
                began = time.perf_counter()
                answers.append(way(vector))
                taken[name].append((time.perf_counter() - began) * 1000)
            # rounding may change which one comes last
            if any(len(answers[0] - each) > 1 for each in answers[1:]):
                raise RuntimeError("two ways have found different vectors")
        database.close()
    return {
        name: {"median_ms": round(statistics.median(each), 2), "slowest_ms": round(max(each), 2)}
        for name, each in taken.items()
    }


def main() -> None:
    """Measure, print and write it."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("--vectors", type=int, default=100_000)
    parser.add_argument("--size", type=int, default=384)
    parser.add_argument("--queries", type=int, default=20)
    options = parser.parse_args()
    found = measure(options.vectors, options.size, options.queries)
    for name, each in found.items():
        print(f"{name:14} {each['median_ms']:9.2f} ms, at most {each['slowest_ms']:9.2f} ms")
    write_results("vectors", {**vars(options), "ways": found})


if __name__ == "__main__":
    main()
