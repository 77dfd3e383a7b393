"""What pyproject.toml says of the oldest versions that will do."""

from __future__ import annotations

import tomllib

import pytest

from tests.floors import EXTRAS, ROOT, declared, floor_of, floors


@pytest.mark.parametrize(
    ("requirement", "floor"),
    [
        ("msgspec>=0.19", "msgspec==0.19"),
        ("uvicorn[standard]>=0.36", "uvicorn==0.36"),
        ("aiohttp >= 3.12, < 3.15", "aiohttp==3.12"),
        ("triton>=3.7.1; sys_platform == 'linux'", "triton==3.7.1"),
        ("types-PyYAML", None),
    ],
)
def test_a_floor_is_read(requirement: str, floor: str | None) -> None:
    assert floor_of(requirement) == floor


@pytest.mark.parametrize("requirement", ["x~=1.0", "x==1.0", "x>=1; python_version < '3.12'"])
def test_what_has_no_plain_floor_is_not_passed_over(requirement: str) -> None:
    with pytest.raises(ValueError, match="no 'name>=version'"):
        floor_of(requirement)


def test_every_dependency_has_a_floor_and_none_a_ceiling() -> None:
    """A ceiling is for packages whose private names we can't do without; there are none."""
    project = tomllib.loads((ROOT / "pyproject.toml").read_text("utf-8"))["project"]
    written = list(declared(project, EXTRAS))
    assert len(floors()) == len(set(written))
    for requirement in written:
        assert ">=" in requirement, requirement
        assert "<" not in requirement, requirement
