"""Fetches anew what the page has from others, at the versions and digests below.

    python -m scripts.vendored_page

A version is changed here, with the digest that `npm view NAME@VERSION dist.integrity` says. Nothing
is compiled: what lies in `routing/page/assets/vendor` are the files of those packages, where one
that has no ES module is given an `export` at its end.
"""

from __future__ import annotations

import base64
import hashlib
import io
import json
import re
import subprocess
import sys
import tarfile
import tempfile
from dataclasses import dataclass
from pathlib import Path

FOLDER = Path(__file__).parents[1] / "routing" / "page" / "assets" / "vendor"


@dataclass(frozen=True)
class Package:
    """One of npm's, and what is taken of it.

    Attributes:
        integrity: what npm says of its tarball: `sha512-` and base64.
        file: the path in the package.
        kept_as: the name that the page imports.
        export: what makes a module of a plain script.
    """

    name: str
    version: str
    integrity: str
    file: str
    kept_as: str
    license: str = "LICENSE"
    export: str = ""


PACKAGES = (
    Package(
        "marked",
        "18.2.1",
        "sha512-ii4bxCTCqqwpT86XZWgJNs+ZnAIZksmLGYMViWA7PDIXYIeNo1x6cDdX3JOip9NM/cI6p8z57FxliACboTruMA==",
        "lib/marked.esm.js",
        "marked.js",
    ),
    Package(
        "dompurify",
        "3.4.18",
        "sha512-ofe3wI/uNm68HInABYFJYqQxRw1EaKAjNdrFVKqjUY+UZurvNd2L/HuQe097s/4RivWiZyP6tT7aoT8atjfhwg==",
        "dist/purify.es.mjs",
        "dompurify.js",
    ),
    Package(
        "@highlightjs/cdn-assets",
        "11.12.0",
        "sha512-KvOKXODaiFmId9xaq3xc5xCL66wVLUuOngDbO9B/kewbFTqdGbn2nJxNhN3H5R1cgDTVj6R8vH0zgiNDEGjpDw==",
        "es/highlight.min.js",
        "highlight.js",
    ),
    Package(
        "temml",
        "0.13.5",
        "sha512-aPkDDgunanpLNL0ql32HbolqLep+w8DRcVXRql7rWrMt/PhczdLgL4UBYYVU3BYjCNjkGq4EqwIicu/zWr1iOg==",
        "dist/temml.min.js",
        "temml.js",
        "LICENSE",
        "\nexport default temml;\n",
    ),
)


def main() -> int:
    """Write the files, their licences and the note of versions."""
    FOLDER.mkdir(exist_ok=True)
    for package in PACKAGES:
        for name, content in files_of(package).items():
            (FOLDER / name).write_bytes(content)
    (FOLDER / "versions.json").write_text(note(), "utf-8")
    return 0


def note() -> str:
    """Which file is of which package, with the digest of each as it lies here."""
    listed = {
        each.kept_as: {
            "package": each.name,
            "version": each.version,
            "sha256": hashlib.sha256((FOLDER / each.kept_as).read_bytes()).hexdigest(),
        }
        for each in PACKAGES
    }
    return json.dumps(listed, indent=2) + "\n"


def files_of(package: Package) -> dict[str, bytes]:
    """The module and the licence of a package, as npm's registry has them.

    Raises:
        SystemExit: the tarball is another than the one that was looked at.
    """
    with tempfile.TemporaryDirectory() as folder:
        wanted = f"{package.name}@{package.version}"
        subprocess.run(
            ["npm", "pack", "--silent", "--pack-destination", folder, wanted],
            check=True,
            stdout=subprocess.DEVNULL,
        )
        [tarball] = Path(folder).iterdir()
        content = tarball.read_bytes()
    digest = "sha512-" + base64.b64encode(hashlib.sha512(content).digest()).decode()
    if digest != package.integrity:
        sys.exit(f"{wanted} has another digest than the one pinned here: {digest}")
    stem = package.kept_as.removesuffix(".js")
    with tarfile.open(fileobj=io.BytesIO(content)) as archive:

        def read(path: str) -> bytes:
            found = archive.extractfile(f"package/{path}")
            assert found is not None
            return found.read()

        # The maps of the sources stay where they are: nobody asks this server for them.
        script = re.sub(rb"\n//# sourceMappingURL=.*", b"", read(package.file))
        script += package.export.encode()
        return {package.kept_as: script, f"{stem}.LICENSE.txt": read(package.license)}


if __name__ == "__main__":
    sys.exit(main())
