"""What the store has to know of the APIs whose replies it keeps: where what stands in a reply, and
what is said of one that is not there."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from msgspec import Struct

from llama_compat.errors import APIError, invalid_parameter


class AtVendor(Struct, frozen=True):
    """Where a reply is made that a vendor works on while nobody waits for it.

    Attributes:
        provider: whose vendor it is.
        model: the vendor's name of the model.
        id: the vendor's of the reply.
        asked: the model that the client asked for; empty where that was not noted.
        request_id: of the request that it came of; the same.
    """

    provider: str
    model: str
    id: str
    asked: str = ""
    request_id: str = ""


class KeptAPI(Struct, frozen=True):
    """One API.

    Attributes:
        noun: what it calls a reply.
        wire: the name of the call that makes one.
        prefix: what the ids of its replies begin with, by which the APIs' replies are told apart.
        output: the member of a reply that holds what the model said.
        names_items: whether what it holds can be asked for by id.
        lists_errors: whether a reply has several errors, or one.
        outlives_earlier: whether a reply is gone on from although one before it was deleted; the
            conversation begins after that. OpenAI has it so
            (https://community.openai.com/t/expiration-and-deletion-behavior-of-api-responses/1149127,
            2026-11-28).
        code, previous_code: the codes of the errors that there is no such reply: 404 where it is
            asked for, and 400 where it is to be gone on from.
    """

    noun: str
    wire: str
    prefix: str
    output: str
    code: str
    previous_code: str
    names_items: bool = False
    lists_errors: bool = False
    outlives_earlier: bool = False

    @property
    def previous(self) -> str:
        """The member of a request that names the reply that it goes on from."""
        return f"previous_{self.noun}_id"

    def failed(self, reply: Mapping[str, Any], error: Mapping[str, Any]) -> dict[str, Any]:
        """`reply`, failed with `error`."""
        told = {"errors": [error]} if self.lists_errors else {"error": error}
        return {**reply, "status": "failed", **told}

    def not_found(self, reply_id: str) -> APIError:
        """404: the caller has no reply of this id."""
        return APIError(
            404,
            f"{self.noun.capitalize()} with id '{reply_id}' not found among those that are kept"
            " here. What a vendor keeps can be asked for there.",
            type="invalid_request_error",
            param=f"{self.noun}_id",
            code=self.code,
        )

    def previous_not_found(self, reply_id: str) -> APIError:
        """400: it can't be gone on from."""
        return invalid_parameter(
            self.previous,
            f"The {self.noun} '{reply_id}' is not among the stored ones: it was never stored, was"
            " deleted, or had to make room. Send the whole conversation in 'input'.",
            self.previous_code,
        )

    def still_running(self, reply_id: str) -> APIError:
        """400: it can't be gone on from yet."""
        return invalid_parameter(self.previous, f"The {self.noun} '{reply_id}' is still running.")


RESPONSES_KEPT = KeptAPI(
    "response",
    "responses",
    "resp_",
    "output",
    "response_not_found",
    "previous_response_not_found",
    names_items=True,
    outlives_earlier=True,
)
INTERACTIONS_KEPT = KeptAPI(
    "interaction",
    "interactions",
    "int_",
    "steps",
    "interaction_not_found",
    "previous_interaction_not_found",
    lists_errors=True,
)


def api_of(reply_id: str) -> KeptAPI:
    """Whose a reply with this id is."""
    return INTERACTIONS_KEPT if reply_id.startswith(INTERACTIONS_KEPT.prefix) else RESPONSES_KEPT
