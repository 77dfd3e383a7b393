"""What runs in the cluster: this server with one model, as an application of Ray Serve."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from llama_compat.distribution import Distribution
from providers.registry import config_model
from routing.asgi import ASGIApplication, Receive, Send
from routing.replicas.application import DEPLOYMENT

if TYPE_CHECKING:
    from ray import serve


def build(args: Mapping[str, Any]) -> serve.Application:
    """The application of Ray Serve that a config file names by `import_path`; its options are in
    that file.

    Args:
        args: `template`, what each replica serves.
    """
    return deployment(args["template"]).bind()


def deployment(template: Mapping[str, Any]) -> serve.Deployment:
    """Replicas that serve `template`."""
    from ray import serve

    def application() -> ASGIApplication:
        # Called in the replica: nothing of it is pickled but the template.
        return engine(template)

    made: serve.Deployment = serve.deployment(serve.ingress(application)())
    return made.options(name=DEPLOYMENT)


def engine(template: Mapping[str, Any]) -> ASGIApplication:
    """The server of one replica."""
    from routing.app import Application

    providers = [
        {**each, "config": config_model(each["type"]).validate(each["config"])}
        for each in template["providers"]
    ]
    app = Application(Distribution.model_validate({**template, "providers": providers}))

    async def below_its_prefix(scope: dict[str, Any], receive: Receive, send: Send) -> None:
        # Serve has the application's prefix in front of all paths, and says so in `root_path`.
        root = scope.get("root_path", "")
        if root and scope.get("path", "").startswith(root):
            scope = {**scope, "path": scope["path"][len(root) :] or "/", "root_path": ""}
        await app(scope, receive, send)

    return below_its_prefix
