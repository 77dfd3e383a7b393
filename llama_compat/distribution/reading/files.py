"""Where templates are: those that ship, by their names, and any file by its path."""

from __future__ import annotations

from pathlib import Path

from llama_compat.distribution.problems import Problem, TemplateError, did_you_mean

MAX_TEMPLATE_BYTES = 1024 * 1024


def template_path(source: str) -> Path:
    """Where the template `source` is looked for: the name of one that ships, or a path."""
    names = [name for name, _ in list_templates()]
    return _template_folder() / f"{source}.yaml" if source in names else Path(source)


def schema_path() -> Path:
    """Where the JSON Schema of templates is, which `make reference` writes."""
    return _template_folder() / "schema.json"


def list_templates() -> list[tuple[str, str]]:
    """The templates that ship: name, and description from the comment that they begin with."""
    return sorted((path.stem, _description(path)) for path in _template_folder().glob("*.yaml"))


def _template_folder() -> Path:
    """In an installed package inside `llama_compat`, in a checkout beside it."""
    package = Path(__file__).parents[2]
    installed = package / "templates"
    return installed if installed.is_dir() else package.parent / "templates"


def _description(path: Path) -> str:
    first_line = path.read_text("utf-8").partition("\n")[0]
    return first_line.removeprefix("#").strip() if first_line.startswith("#") else ""


def read_template(source: str) -> tuple[str, str]:
    """The path of the template `source`, and its text.

    Raises:
        TemplateError: there is none, or it is not text.
    """
    path = template_path(source)
    try:
        with path.open("rb") as file:
            raw = file.read(MAX_TEMPLATE_BYTES + 1)
        if len(raw) > MAX_TEMPLATE_BYTES:
            raise _unreadable(path, f"larger than {MAX_TEMPLATE_BYTES} bytes, so not a template")
        return str(path), raw.decode("utf-8-sig")
    except FileNotFoundError:
        names = [name for name, _ in list_templates()]
        problem = f"no such file, and not one of the templates {', '.join(names)}"
        raise _unreadable(path, problem + did_you_mean(path.stem, names)) from None
    except IsADirectoryError:
        raise _unreadable(path, "is a folder; name a template or a YAML file") from None
    except UnicodeDecodeError as error:
        line = raw.count(b"\n", 0, error.start) + 1
        raise _unreadable(path, "not UTF-8 text; save the file as UTF-8", line) from None
    except OSError as error:
        raise _unreadable(path, f"can't be read: {error.strerror or error}") from None


def _unreadable(path: Path, message: str, line: int | None = None) -> TemplateError:
    return TemplateError(str(path), [Problem(message, line=line)])
