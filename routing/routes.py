"""Where a request goes, and whether it may: what has to be known before anything is done for it."""

from __future__ import annotations

from llama_compat.errors import context_length_exceeded, too_many_choices
from routing.models import ModelTable, Route
from routing.request import Request


def find_route(request: Request, models: ModelTable, max_choices: int) -> Route:
    """Look up where `request`, whose call is there, goes; it has that as its `route` then.

    Args:
        request: what is asked.
        models: where each model leads.
        max_choices: replies that one request may ask for.

    Raises:
        APIError: 404, there is no such model; 403, it is not for who asks; 400, more is wanted
            than may be, or than the model holds.
    """
    call = request.call
    assert call is not None
    made = call.extent.made
    if made > max_choices:
        raise too_many_choices(made, max_choices)
    request.route = route = models.look_up(request.model, call.principal, request.other_names)
    route.check_open_to(call.principal, request.model)
    # Only a provider can count the prompt; but what is wanted alone may be too much already.
    longest = call.extent.max_tokens or 0
    if route.limit is not None and longest > route.limit:
        raise context_length_exceeded(route.limit, 0, longest)
    return route
