"""`deploy`: a template's replicas as a file for `serve deploy`, or for KubeRay."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from routing.cli.terminal import TemplateArgument, fail, load, print_


def deploy(
    template: TemplateArgument,
    output: Annotated[
        Path | None,
        typer.Option("--output", "-o", metavar="FILE", help="Where to write it; else it is shown."),
    ] = None,
    kuberay: Annotated[
        bool, typer.Option("--kuberay", help="A RayService for KubeRay in place of a config file.")
    ] = False,
    image: Annotated[
        str | None,
        typer.Option(metavar="IMAGE", help="For --kuberay: what the containers run."),
    ] = None,
) -> None:
    """Write the Ray Serve config file of a template's replicas."""
    from routing.parts.providers import wanted_models
    from routing.replicas.application import all_applications
    from routing.replicas.config_file import DEFAULT_IMAGE, ray_service, serve_config

    distribution = load(template)
    applications = all_applications(distribution, wanted_models(distribution))
    if not applications:
        fail(f"{template} has no model whose provider has `replicas`: nothing to deploy on Ray.")
    if kuberay:
        text = ray_service(applications, image or DEFAULT_IMAGE)
    else:
        text = serve_config(applications)
    if output is None:
        typer.echo(text, nl=False)
        return
    output.write_text(text, "utf-8")
    how = f"kubectl apply -f {output}" if kuberay else f"serve deploy {output}"
    print_(f"{output} is written. Deploy it:  {how}")
