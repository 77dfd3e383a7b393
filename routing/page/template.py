"""`/admin/template`: the template that is served, with its secrets covered; a changed one is
checked and taken over where `server.admin.can_edit` lets it be.

A secret that is left covered in a changed text stands for the one in the file. Nothing that these
routes say has a secret or a value of the environment in it. Still, whoever may check may find out
what values are, and whoever may take over a template may have the server run any program and read
any file: both are for those only who may have a shell of the server's user.
"""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Annotated

from fastapi import Request
from fastapi.responses import JSONResponse
from pydantic import BaseModel, ConfigDict, Field

from llama_compat.distribution import covered_template, distribution_of
from llama_compat.distribution.problems import Problem, TemplateError
from llama_compat.distribution.reading.files import MAX_TEMPLATE_BYTES
from llama_compat.errors import APIError
from providers.base import ProviderStartError
from providers.registry import config_model
from routing.auth import ADMIN
from routing.ingress.if_match import IfMatch, version_in
from routing.page.audited import noted
from routing.process.reload import Reloader, TemplateRefused
from routing.process.template_file import (
    TemplateChanged,
    TemplateFile,
    TemplateNotWritable,
    TemplateText,
)
from routing.runtime import runtime_of

if TYPE_CHECKING:
    from fastapi import APIRouter

    from llama_compat.distribution.reading.covers import CoveredText
    from routing.app import Application

_CHECKS_AT_A_TIME = 1
"""A large text takes a second of Python: more at a time would take it from requests."""


class EditedTemplate(BaseModel):
    """A template that somebody has changed."""

    model_config = ConfigDict(extra="forbid")

    text: Annotated[str, Field(max_length=MAX_TEMPLATE_BYTES)]
    """As `GET /admin/template` gives it, with whatever was changed."""


class TemplateProblem(BaseModel):
    """One mistake, as `llama-compat check` tells it; lines and columns are counted from 1."""

    message: str
    path: str
    line: int | None
    column: int | None


class ShownTemplate(BaseModel):
    """The template in its file, which may be newer than what is served."""

    path: str
    """Of the file."""

    text: str | None
    """What is in it, secrets as `${covered.N}`; null where it is no YAML, so that nobody can tell
    what in it is secret."""

    version: str
    """Of the file, for `If-Match`; it is the `ETag` too."""

    can_edit: bool
    """Whether it may be checked and taken over: `server.admin.can_edit` of what is served."""

    why_not: str
    """Why it can't be taken over although it may be; empty where it can."""

    problems: list[TemplateProblem]


class CheckedTemplate(BaseModel):
    """What is wrong with a text; nothing where it is right."""

    problems: list[TemplateProblem]


class TakenOver(BaseModel):
    """What has come of a template that was taken over."""

    version: str
    """Of the file now."""

    backup: str
    """Where what was in the file before is."""

    providers: dict[str, list[str]]
    """Which are `as it was`, `changed`, `new` and `gone`; all empty if the template says in other
    words what it said before."""

    restart: list[str]
    """Settings that have changed and wait for a restart."""

    others_told: bool
    """Whether other processes of this server have been told to follow; the log says how it went."""


async def tell_template(request: Request) -> JSONResponse:
    """The template in its file, with its comments and with its secrets covered."""
    found = await _read(_reloader(request))
    problems: list[Problem] = []
    text = None
    try:
        covered = await asyncio.to_thread(covered_template, found.text, config_model)
        text = covered.text
        problems = await asyncio.to_thread(_problems, found, covered, text)
    except TemplateError as error:
        problems = error.problems
    told = ShownTemplate(
        path=found.path,
        text=text,
        version=found.version,
        can_edit=_can_edit(request),
        why_not=found.problem,
        problems=[_shown(each) for each in problems],
    )
    return JSONResponse(told.model_dump(), headers=_headers(found.version))


def add_template_routes(router: APIRouter) -> None:
    """Add them to `router`."""
    checking = asyncio.Semaphore(_CHECKS_AT_A_TIME)
    taking: set[asyncio.Task[TakenOver]] = set()

    async def check_template(
        request: Request, edited: EditedTemplate, if_match: IfMatch = None
    ) -> CheckedTemplate:
        """Check a changed template as `llama-compat check` does. `If-Match` is the version of the
        one that was changed. Only where `server.admin.can_edit` is true: what is said of values of
        the environment could tell what they are."""
        _may_edit(request)
        async with checking:
            found, covered = await _read_covered(_reloader(request), if_match)
            problems = await asyncio.to_thread(_problems, found, covered, edited.text)
        return CheckedTemplate(problems=[_shown(each) for each in problems])

    async def take_template_over(
        request: Request, edited: EditedTemplate, if_match: IfMatch = None
    ) -> TakenOver:
        """Serve a changed template, and put it into the file of the one before, which is kept
        beside it as `.bak`. `If-Match` is the version of the one that was changed. Only where
        `server.admin.can_edit` is true: it may name programs to run and files to read, so that the
        admin key opens what a shell opens. What can't be served is not written."""
        _may_edit(request)
        reloader = _reloader(request)
        async with checking:
            found, covered = await _read_covered(reloader, if_match)
            problems = await asyncio.to_thread(_problems, found, covered, edited.text)
        if problems:
            raise _invalid(str(TemplateError(found.path, problems)))
        text = await asyncio.to_thread(covered.uncovered, edited.text)

        async def take_over() -> TakenOver:
            taken = await _take_over(reloader, found, text, covered)
            await noted(request, "template.change", found.path, f"before: {taken.backup}")
            return taken

        # Who leaves meanwhile must not leave it half done.
        task = asyncio.create_task(take_over(), name="template is taken over")
        taking.add(task)
        task.add_done_callback(taking.discard)
        return await asyncio.shield(task)

    path = f"{ADMIN}template"
    router.add_api_route(
        path, tell_template, methods=["GET"], tags=["admin"], response_model=ShownTemplate
    )
    router.add_api_route(f"{path}/check", check_template, methods=["POST"], tags=["admin"])
    router.add_api_route(path, take_template_over, methods=["PUT"], tags=["admin"])


async def _take_over(
    reloader: Reloader, found: TemplateText, text: str, covered: CoveredText
) -> TakenOver:
    file = TemplateFile(reloader.source)
    # Files are looked at in threads; the lock of this one is held from here to its end.
    replacement = file.replacement(text, found.version)
    backup = ""
    try:
        made = await asyncio.to_thread(replacement.__enter__)
        try:

            def keep() -> None:
                nonlocal backup
                backup = str(file.put(made, found.version))

            reloaded = await reloader.take_over(found.path, text, keep)
        finally:
            await asyncio.to_thread(replacement.__exit__, None, None, None)
        now = await asyncio.to_thread(file.read)
    except TemplateChanged:
        raise _changed() from None
    except TemplateNotWritable as error:
        raise APIError(409, str(error), code="template_not_writable") from None
    except (TemplateError, ProviderStartError, TemplateRefused) as error:
        raise _invalid(covered.hidden(str(error))) from None
    return TakenOver(
        version=now.version,
        backup=backup,
        providers=reloaded.providers,
        restart=reloaded.restart,
        others_told=reloader.has_others,
    )


def _reloader(request: Request) -> Reloader:
    app: Application = request.app
    if app.reloader is None:
        raise APIError(
            409,
            "What this server serves does not come from a template's file.",
            code="template_not_writable",
        )
    return app.reloader


def _can_edit(request: Request) -> bool:
    return runtime_of(request).settings.admin.can_edit


def _may_edit(request: Request) -> None:
    if not _can_edit(request):
        raise APIError(
            403,
            "The template can't be changed from here: `server.admin.can_edit: true` in it lets who"
            " has the admin key do so, which opens as much as a shell does.",
            code="template_not_editable",
        )


async def _read(reloader: Reloader) -> TemplateText:
    try:
        return await asyncio.to_thread(TemplateFile(reloader.source).read)
    except TemplateError as error:
        raise APIError(409, str(error), code="template_unreadable") from None


async def _read_covered(
    reloader: Reloader, if_match: str | None
) -> tuple[TemplateText, CoveredText]:
    """The file, if it is of the version that was changed."""
    found = await _read(reloader)
    if version_in(if_match) != found.version:
        raise _changed()
    try:
        return found, await asyncio.to_thread(covered_template, found.text, config_model)
    except TemplateError:
        raise _changed() from None


def _problems(found: TemplateText, covered: CoveredText, text: str) -> list[Problem]:
    """What is wrong with `text`, as `llama-compat check` says it."""
    try:
        distribution_of(found.path, text, config_model, covered.secrets)
    except TemplateError as error:
        return [
            Problem(covered.hidden(each.message), each.path, each.line, each.column)
            for each in error.problems
        ]
    return []


def _shown(problem: Problem) -> TemplateProblem:
    return TemplateProblem(
        message=problem.message, path=problem.path, line=problem.line, column=problem.column
    )


def _headers(version: str) -> dict[str, str]:
    return {"etag": f'"{version}"', "cache-control": "no-store"}


def _changed() -> APIError:
    return APIError(
        412,
        "The template's file is another than the one that was read: read it again. `If-Match` has"
        " to be the version that was read.",
        code="template_changed",
    )


def _invalid(message: str) -> APIError:
    return APIError(400, f"The template is not taken over:\n{message}", code="template_invalid")
