"""Every error code with its cause and its cure; a test holds the table against the code."""

from __future__ import annotations

from typing import NamedTuple

from llama_compat.error_classes import _ROWS, ErrorClass, _Row
from llama_compat.errors import TYPE_BY_STATUS
from scripts.reference.markdown import code, codes, table
from scripts.reference.markdown import page as page_of


class Row(NamedTuple):
    """What a client is told with one `code`."""

    status: str
    cause: str
    cure: str


REQUEST = {
    "missing_required_parameter": Row("400", "A field is missing.", "Send the field in `param`."),
    "invalid_value": Row(
        "400", "A field has a value that it can't have.", "`message` says what it may be."
    ),
    "invalid_type": Row("400", "A field is of the wrong type.", "`message` says of which it is."),
    "empty_array": Row("400", "A list that has to hold something is empty.", "Put something in."),
    "invalid_json": Row("400", "The body is no JSON object.", "Send one, in UTF-8."),
    "invalid_form": Row(
        "400",
        "The body is no proper `multipart/form-data`.",
        "`message` says what is wrong with it: its boundary, its end, or one of its parts.",
    ),
    "too_many_values": Row(
        "400", "The body has more values or members than are looked at.", "Send less at a time."
    ),
    "nested_too_deeply": Row(
        "400", "Objects and arrays are nested deeper than is looked at.", "Make it flatter."
    ),
    "malformed_request": Row("400", "It is no HTTP/1.1.", "Mend the client or the proxy."),
    "unsupported_parameter": Row(
        "400",
        "The provider, or the server, can't honour the field in `param`.",
        "Leave it out, ask another model, or set `unsupported: drop` for the provider.",
    ),
    "unsupported_capability": Row(
        "400",
        "The provider can't do this at all: embeddings, say.",
        "Ask a model of another provider.",
    ),
    "tool_not_allowed": Row(
        "403",
        "The key may not have the server run the tool.",
        "Leave the tool out, or have it added to the key's `tools`.",
    ),
    "unknown_tool_server": Row(
        "400",
        "The request names an MCP server that there is not.",
        "Name one of the template's by its label, or set `mcp.from_requests` for others.",
    ),
    "unsupported_content": Row(
        "400",
        "A message holds what the model can't read, such as an image or audio.",
        "Leave it out.",
    ),
    "context_length_exceeded": Row(
        "400",
        "The prompt and what may be generated do not fit.",
        "Shorten the prompt, lower `max_tokens`, or add a target that holds more.",
    ),
    "too_many_choices": Row(
        "400",
        "`n` times the prompts is over `server.max_choices`.",
        "Send several requests, or raise it.",
    ),
    "too_many_images": Row(
        "400",
        "More images are to be fetched, or shown to a model in this process, than"
        " `images.max_count`.",
        "Send fewer, or raise it.",
    ),
    "image_too_large": Row(
        "400",
        "An image for a model in this process has more pixels than `images.max_pixels`, or all of"
        " them more bytes than `images.max_bytes`.",
        "Send smaller ones, or raise it.",
    ),
    "invalid_image": Row(
        "400",
        "An image for a model in this process is torn, moves, has no pixels, is of a kind that is"
        " not read, or of a shape that the model is shown none of.",
        "Send it as a PNG, JPEG, WebP, BMP or GIF of one frame.",
    ),
    "too_many_audio": Row(
        "400",
        "More files of audio are for a model in this process than `audio.max_count`.",
        "Send fewer, or raise it.",
    ),
    "audio_too_large": Row(
        "400",
        "The audio for a model in this process takes more seconds than `audio.max_seconds`, or more"
        " bytes than `audio.max_bytes`.",
        "Send less, or raise it.",
    ),
    "invalid_audio": Row(
        "400",
        "A file of audio for a model in this process is cut off, holds nothing, is of a format or a"
        " rate that is not read, or is longer or shorter than the model hears.",
        "Send it as a whole WAV file of 8, 16, 24 or 32 bits.",
    ),
    "invalid_image_url": Row(
        "400",
        "An image can't be fetched, or its address is not a public one.",
        "Send it as a `data:` URL, or set `images.allow_private_addresses`.",
    ),
    "invalid_document_url": Row(
        "400",
        "A PDF can't be fetched, or its address is not a public one.",
        "Send it in base64, or set `images.allow_private_addresses`.",
    ),
    "no_chat_template": Row(
        "400", "The model is no chat model: it has no chat template.", "Use `/v1/completions`."
    ),
    "content_filter": Row(
        "400",
        "The vendor's filter refused it, or a guardrail of the template.",
        "Say it otherwise.",
    ),
    "target_not_allowed": Row(
        "400",
        "`x-llama-compat-target` is not for clients of this model.",
        "Leave it out, or set `pin: true` in its `routing`.",
    ),
    "target_not_found": Row(
        "400, 404",
        "The model, or the server, has no such target.",
        "`message` lists those that it has.",
    ),
    "previous_response_not_found": Row(
        "400",
        "`previous_response_id` names nothing that is kept for this key, or known on the"
        " WebSocket.",
        "Send the conversation, or turn on `server.responses_store`.",
    ),
    "unknown_event_type": Row(
        "400",
        "Over a WebSocket, something else than `response.create`.",
        "Send that; responses can't be steered.",
    ),
    "websocket_connection_limit_reached": Row(
        "400",
        "The WebSocket is as old as `server.websockets.max_seconds` allows.",
        "Open another.",
    ),
    "invalid_handshake": Row(
        "400, 426", "What should begin a WebSocket does not.", "Use a library for WebSockets."
    ),
    "previous_interaction_not_found": Row(
        "400",
        "`previous_interaction_id` names nothing that is kept for this key.",
        "Send all steps, or turn on `server.responses_store`.",
    ),
    "item_not_found": Row("400", "An item reference names nothing kept.", "Send the item."),
    "conversation_too_long": Row(
        "400", "The responses before this one are too many to put together.", "Begin anew."
    ),
    "invalid_api_key": Row(
        "401",
        "The key is missing, wrong, revoked or expired.",
        "Send one of the server's own keys as `Authorization: Bearer KEY`.",
    ),
    "invalid_admin_key": Row("401", "`/admin/` wants the admin key.", "Send it as a bearer."),
    "admin_disabled": Row(
        "403", "The template has no `server.admin_key`.", "Set one, and restart or reload."
    ),
    "model_not_allowed": Row(
        "403", "The key does not open the model.", "Ask for one in the list, or widen `models`."
    ),
    "team_not_found": Row(
        "403",
        "The key is of a team that the template has no more.",
        "Put the team back into `teams`, or give the key another one.",
    ),
    "origin_not_allowed": Row(
        "403",
        "A web page of another origin would open a WebSocket.",
        "Name its origin in `server.cors.origins`.",
    ),
    "metrics_not_allowed": Row(
        "403",
        "The key is for asking models, not for seeing how the server does.",
        "Send `server.metrics_key`, `server.admin_key` or one of `server.api_keys`.",
    ),
    "model_not_found": Row("404", "There is no such model.", "`message` lists some that are."),
    "not_offered": Row(
        "404", "The provider has no way of doing this: counting tokens, say.", "Ask another model."
    ),
    "batches_disabled": Row(
        "404", "The server works on no batches.", "Set `server.batches: {}` in the template."
    ),
    "batch_not_found": Row(
        "404",
        "No batch has this id, or it is another key's, or was deleted.",
        "List the batches of this key.",
    ),
    "batch_in_progress": Row(
        "400",
        "The batch has not ended, so it has no results, and can't be deleted.",
        "Retrieve it until it has ended, or cancel it.",
    ),
    "batch_has_ended": Row(
        "409", "The batch has ended, and can't be cancelled.", "Retrieve it, and read its output."
    ),
    "file_not_found": Row(
        "404",
        "No file has this id, or it is another key's, was deleted, or has expired.",
        "Upload it again, with this key.",
    ),
    "files_disabled": Row(
        "404", "The server keeps no files.", "Set `server.files: {}` in the template."
    ),
    "file_in_use": Row(
        "409",
        "A batch that has not ended reads the file.",
        "Cancel the batch, or wait for its end.",
    ),
    "file_too_large": Row(
        "413", "The file has more bytes than one may.", "Split it, or raise `files.max_bytes`."
    ),
    "files_too_large": Row(
        "413",
        "The key's files would have more bytes than they may together.",
        "Delete some, or raise `files.max_key_bytes`.",
    ),
    "vector_stores_disabled": Row(
        "404",
        "The server keeps no vector stores.",
        "Set `server.vector_stores: {embedding_model: ...}` in the template.",
    ),
    "vector_store_not_found": Row(
        "404",
        "No vector store has this id, or it is another key's, or was deleted.",
        "Make one with this key.",
    ),
    "vector_store_file_not_found": Row(
        "404", "The vector store has no such file.", "Put it in, or list those that are there."
    ),
    "file_batch_not_found": Row(
        "404", "The vector store has no such file batch.", "Use the id that `create` gave."
    ),
    "vector_store_expired": Row(
        "400",
        "The vector store was not used for as long as its `expires_after` says.",
        "Make another of the same files.",
    ),
    "vector_store_file_not_ready": Row(
        "409", "The file has not been read yet, or could not be.", "Wait until it is `completed`."
    ),
    "too_many_vector_stores": Row(
        "413",
        "The key has as many vector stores as it may.",
        "Delete some, or raise `vector_stores.max_key_stores`.",
    ),
    "vector_stores_too_large": Row(
        "413",
        "The key's vector stores would come to more pieces or bytes than they may.",
        "Delete some, or raise `vector_stores.max_key_chunks` and `max_key_bytes`.",
    ),
    "response_not_found": Row(
        "404", "No such response is kept for this key.", "Turn on `server.responses_store`."
    ),
    "interaction_not_found": Row(
        "404", "No such interaction is kept for this key.", "Turn on `server.responses_store`."
    ),
    "key_not_found": Row("404", "No stored key has that id, prefix or name.", "List the keys."),
    "request_not_found": Row(
        "404",
        "No request with that id is recorded here.",
        "Look for it with `GET /admin/requests?text=...`; what is new takes a second.",
    ),
    "request_timeout": Row(
        "408",
        "Headers or body did not come in time.",
        "Send without a pause, or raise `header_seconds` or `body_seconds`.",
    ),
    "no_key_store": Row("409", "The server stores no keys.", "Set `server.stored_keys: true`."),
    "no_records": Row("409", "The server keeps no records.", "Set `server.records: {}`."),
    "response_too_large": Row(
        "413",
        "A background response would be larger, with its input alone, than all that is kept.",
        "Ask without `background`, send less, or raise `server.responses_store` `max_bytes`.",
    ),
    "request_too_large": Row(
        "413", "The body is over `server.max_body_bytes`.", "Send less, or raise it."
    ),
    "unsupported_content_encoding": Row("415", "The body is compressed.", "Send it as it is."),
    "websocket_not_supported": Row(
        "426",
        "There is no WebSocket at this path, or `server.websockets` is null.",
        "Use HTTP.",
    ),
    "request_headers_too_large": Row(
        "431",
        "Headers are over `max_header_bytes` or `max_headers`.",
        "Send less, or raise them.",
    ),
}
"""What a client can mend."""

LIMITS = {
    "rate_limit_exceeded": Row(
        "429",
        "A limit of the key, its team, the model or the provider is reached, or the vendor's.",
        "Wait as long as `retry-after` says.",
    ),
    "insufficient_quota": Row(
        "429",
        "A budget is used up, or the account at the vendor.",
        "Raise `budget`, or pay the vendor; `retry-after` says when it begins anew.",
    ),
    "engine_overloaded": Row(
        "429, 503",
        "As many requests wait for the engine as `max_waiting` lets.",
        "Wait as long as `retry-after` says, or raise it.",
    ),
    "server_busy": Row(
        "503",
        "All bodies together are near `server.max_bodies_bytes`.",
        "Come back soon, or raise it.",
    ),
    "too_many_connections": Row(
        "503", "All `server.max_connections` are in use.", "Reuse connections, or raise it."
    ),
    "targets_drained": Row(
        "503",
        "All targets that could answer have been drained by whoever runs the server.",
        "Ask again later, or for another model; `POST /admin/targets/{id}/open` opens one again.",
    ),
    "template_not_editable": Row(
        "403",
        "`server.admin.can_edit` of the template that is served is not true.",
        "Change the file itself, or set it: the admin key opens as much then as a shell does.",
    ),
    "template_unreadable": Row(
        "409",
        "The template's file is not there, or is no text.",
        "Look after the file; what was read from it before is served on.",
    ),
    "template_not_writable": Row(
        "409",
        "The template's file can't be replaced by the server: it ships with it, or its user may"
        " not.",
        "Change it where it comes from, or let the server's user write it.",
    ),
    "key_changed": Row(
        "412",
        "Somebody has changed the key since the `version` was read that came as `If-Match`.",
        "Read it again, and send its version as `If-Match`.",
    ),
    "template_changed": Row(
        "412",
        "The template's file is another than the one that was read, or is being replaced.",
        "Read it again, and send its version as `If-Match`.",
    ),
    "template_invalid": Row(
        "400",
        "The template is wrong, or a provider can't start with it; nothing has changed.",
        "Mend what the message names.",
    ),
    "keys_unavailable": Row(
        "503",
        "The storage of keys can't be read, and nobody knows yet whether the key is good.",
        "Ask again in a moment; look after the database.",
    ),
    "chat_template_failed": Row(
        "500",
        "The model's chat template failed, never ended, or wanted too much memory.",
        "Mend the template in the model's folder, or ask another model.",
    ),
    "invalid_model_output": Row(
        "500",
        "A model in this process computed no numbers (NaN or infinity).",
        "Pull the model again, or load it in another dtype.",
    ),
    "limits_unavailable": Row(
        "503",
        "The store that gateways share can't be asked, and the template says `on_outage: refuse`.",
        "Look after the store, or say `local_share` or `allow`.",
    ),
    "batch_cancelled": Row(
        "of a line", "Its batch was cancelled before it was answered.", "Order it anew."
    ),
    "batch_expired": Row(
        "of a line", "Its batch's time was over before it was answered.", "Order it anew."
    ),
    "batch_key_gone": Row(
        "of a line", "The key of its batch was revoked, or has expired.", "Use another key."
    ),
    "unknown_outcome": Row(
        "of a line",
        "The process ended while it was on its way to a target that costs something, or the"
        " vendor's own batch says nothing of it.",
        "Ask it again if it may be paid for twice; `batches.unknown_outcome: retry` does that.",
    ),
    "vendor_refused": Row(
        "of a line",
        "The vendor's own batch API did not take it, and gave no code.",
        "`message` has the vendor's words; `batches: {via: requests}` asks it otherwise.",
    ),
    "vendor_cancelled": Row(
        "of a line", "Somebody has cancelled the vendor's own batch, not here.", "Order it anew."
    ),
    "server_shutting_down": Row("503", "The process is ending.", "Ask again."),
}
"""What another moment mends."""

BEHIND = {
    "upstream_authentication": Row(
        "502",
        "The vendor refuses the key in the template; the client's is fine.",
        "Set the provider's `api_key`; `llama-compat check --live` tries it.",
    ),
    "upstream_connection_failed": Row(
        "502", "No connection to the vendor, or it closed it.", "Check `base_url` and the network."
    ),
    "upstream_connection_lost": Row("502", "The vendor's answer broke off.", "Ask again."),
    "upstream_reply_too_large": Row(
        "502", "The vendor's reply is over `max_reply_bytes`.", "Raise it, or ask for a stream."
    ),
    "upstream_stream_ended": Row(
        "502", "The vendor's stream ended before the reply did.", "Ask again."
    ),
    "upstream_aborted": Row("502", "The vendor gave up in the middle.", "Ask again."),
    "upstream_error": Row(
        "502",
        "What the vendor answered made no sense: HTML, say, or nothing.",
        "`message` has the beginning of it; check `base_url`.",
    ),
    "upstream_timeout": Row(
        "504",
        "The vendor did not answer in time.",
        "Raise the provider's `timeouts`, or the model's `deadline`.",
    ),
    "upstream_out_of_memory": Row("503", "A FastChat worker has no memory left.", "Ask for less."),
    "no_prompt_cache": Row(
        "404",
        "`/kv_blocks` was asked for a model of which no engine here keeps what it has computed.",
        "Ask for one of `local::torch`, or of `local::echo` with `simulate`, by its provider's"
        " name.",
    ),
    "no_replica": Row(
        "503",
        "No replica of the model has started in time.",
        "See whether the Ray cluster has room; raise `replicas.start_seconds`.",
    ),
    "model_not_loaded": Row(
        "503",
        "The model, or its adapter, is not in memory, and could not be loaded, or had no room in"
        " time.",
        "`message` says why; raise `memory` or `residency.wait_seconds`, or ask again later.",
    ),
    "not_resident": Row(
        "409",
        "`/admin/models/ID/load` or `/unload` was asked of a model that does not share memory.",
        "Set `memory` in the template; other servers' models are theirs to load.",
    ),
    "no_worker": Row("503", "FastChat's controller has no worker for the model.", "Start one."),
    "out_of_memory": Row(
        "503", "The engine has no memory left.", "Lower `max_sequences` or `kv_cache`."
    ),
    "device_lost": Row(
        "503",
        "A GPU has failed under a model in this process, and can't be used again by it.",
        "Start the server again; the log has the cause. Ask a model that is somewhere else.",
    ),
    "store_unavailable": Row(
        "503", "The storage can't be read or written.", "The server's log says why."
    ),
    "not_implemented": Row(
        "501", "Ollama's way of changing models; they are the template's.", "Edit the template."
    ),
    "internal_error": Row(
        "500", "Something went wrong that nobody expected.", "The log has it by its request id."
    ),
}
"""What is wrong behind the server, or in it."""

ELSE = {
    ErrorClass.server_error: ("any other status from 500 on",),
    ErrorClass.unsupported: ("a provider here that refuses before anything is sent",),
    ErrorClass.other: ("all else",),
}
"""What is in no row of the table."""

CODES = {**REQUEST, **LIMITS, **BEHIND}

INTRODUCTION = """\
Errors have the shape of the client's own API, whoever made them. OpenAI's:

```json
{
  "error": {
    "message": "The model 'lama' does not exist. Available: llama.",
    "type": "invalid_request_error",
    "param": "model",
    "code": "model_not_found"
  }
}
```

Anthropic's clients get `{"type": "error", "error": {"type", "message"}, "request_id"}`, Ollama's
`{"error": "message"}`, Google's `{"error": {"code", "message", "status"}}`. Each has the same
`x-request-id` as its line in the log. An error that a vendor made keeps the vendor's own code, if
it has one that is not in these tables."""

CLASSES = """\
## Classes

What is done about an error depends on its class, whoever made it. A template's `fall_back_on` lists
those after which another target is asked; [Targets and attempts](../concepts/targets.md) tells the
rest."""


def page() -> str:
    """The errors."""
    return page_of(
        "Errors",
        INTRODUCTION,
        "## What the client can mend",
        _table(REQUEST),
        "## What another moment mends",
        _table(LIMITS),
        "## What is wrong behind the server",
        _table(BEHIND),
        CLASSES,
        _classes(),
        "## Types\n\nAn error's `type` is the one of its status, unless a row says otherwise.",
        table(("status", "type"), [(str(s), code(t)) for s, t in sorted(TYPE_BY_STATUS.items())]),
    )


def _table(rows: dict[str, Row]) -> str:
    return table(
        ("code", "status", "cause", "cure"), [(code(name), *row) for name, row in rows.items()]
    )


def _classes() -> str:
    head = ("class", "recognised by", "asked again", "falls back", "blamed", "cools at once")
    rows = []
    for kind in ErrorClass:
        handling = kind.handling
        flags = (
            handling.retries,
            handling.falls_back,
            handling.blames_target,
            handling.cools_at_once,
        )
        known_by = "; or ".join(
            [*(_known_by(row) for row in _ROWS if row.error_class is kind), *ELSE.get(kind, ())]
        )
        rows.append((code(kind.value), known_by, *("yes" if each else "" for each in flags)))
    return table(head, rows)


def _known_by(row: _Row) -> str:
    pieces = []
    if row.words:
        pieces.append(f"code or type {codes(sorted(row.words))}")
    if row.statuses:
        statuses = f"status {', '.join(map(str, sorted(row.statuses)))}"
        pieces.append(statuses + (" and its wording" if row.wordings else ""))
    return " or ".join(pieces)
