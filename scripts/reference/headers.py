"""Every header that is understood and sent; a test holds the tables against the code."""

from __future__ import annotations

from scripts.reference.markdown import code, table
from scripts.reference.markdown import page as page_of

UNDERSTOOD = {
    "authorization": "`Bearer KEY`: who asks, by a key of the template or of the storage.",
    "x-api-key": "The same, as Anthropic's clients send it.",
    "x-goog-api-key": "The same, as Google's clients send it.",
    "x-request-id": "Names the request in the answer, in the log and to the vendor: up to 128"
    " printable ASCII characters. Without it, or with another, the server makes one.",
    "x-llama-compat-target": "The only target that the request may go to, as `provider/model`;"
    " where the model's `routing` has `pin: true`.",
    "x-llama-compat-operator": "Under `/admin/`: who asks, by their own word, for the audit;"
    " percent-encoded where it is not ASCII.",
    "anthropic-version": "Goes on to vendors that speak Messages. On `/v1/models` it asks for the"
    " list in Anthropic's shape.",
    "anthropic-beta": "Goes on to vendors that speak Messages.",
    "api-revision": "Goes on to Google, with interactions.",
    "cache-control": "Where the model has a `cache`: `no-store` has nothing to do with it,"
    " `no-cache` is asked anew, and with `max-age=N` no reply older than N seconds is given.",
    "if-match": "With a changed template or key: the version of the one that was changed.",
    "x-forwarded-proto": "`https`: the `results_url` of a batch of messages begins with that.",
    "traceparent": "The trace that the request is part of, where the template has `traces`; vendors"
    " are sent one of their own within it.",
}
"""Of a request."""

SENT = {
    "x-request-id": "Names the request; the log has the same.",
    "request-id": "The same for Anthropic's clients; of a vendor's answer that was relayed, the"
    " vendor's own.",
    "x-upstream-request-id": "The vendor's own name for the request.",
    "x-llama-compat-provider": "Whose answer it is: the provider's id in the template.",
    "x-llama-compat-target": "Which target of the model gave it, as `provider/model`.",
    "x-llama-compat-attempts": "How many requests were sent to targets for it.",
    "x-llama-compat-skipped": "The targets that were not asked, each with the reason in brackets.",
    "x-llama-compat-dropped": "The parameters that were asked for and left out: all that can't be"
    " honoured where the template has `unsupported: drop`, mere wishes where calls are adapted; cut"
    " at 2,000 characters, where it ends in `and N more`. `messages.thinking` are thoughts of"
    " earlier turns that Anthropic's model no longer takes, as what was before them has changed.",
    "x-llama-compat-adapted": "The parameters, names of tools, and schemas of MCP tools, that are"
    " said to the model in another way, as in `max_tokens=64000`, or were left out as they are so"
    " anyway; cut in the same way.",
    "x-llama-compat-cache": "Where the model has a `cache`: `hit`, the reply is one that was there,"
    " or was on its way for another; `miss`, it was asked for; `bypass`, nobody looked.",
    "x-llama-compat-guardrails": "`redacted=` and the names of the guardrails that have hidden"
    " something in the request, or in a whole reply.",
    "x-llama-compat-cache-similarity": "Of a hit that answers a question which is only alike,"
    " where the `cache` has `semantic`: how alike, up to 1.",
    "age": "Of a hit: for how many seconds the reply has been kept.",
    "retry-after": "In how many seconds to come back: with 429 and 503.",
    "retry-after-ms": "The same in milliseconds.",
    "x-should-retry": "`false` where coming back is no use: the request could never be let in, or"
    " not within an hour.",
    "x-ratelimit-limit-requests": "Requests a minute that are let in.",
    "x-ratelimit-limit-tokens": "Tokens a minute.",
    "x-ratelimit-remaining-requests": "How many of the requests are left now.",
    "x-ratelimit-remaining-tokens": "How many of the tokens are left now.",
    "x-ratelimit-reset-requests": "How long until all are there again, as in `1.5s` or `6m0s`.",
    "x-ratelimit-reset-tokens": "The same of the tokens.",
    "anthropic-ratelimit-*": "The same six for Anthropic's clients, the moment of the reset as a"
    " time.",
    "openai-processing-ms": "The vendor's, where it sends it.",
    "www-authenticate": "With 401: `Bearer`.",
    "accept-encoding": "With 415: `identity`, as compressed bodies are not taken.",
    "allow": "With 405: the method that there is.",
    "x-accel-buffering": "With streams: `no`, so that proxies pass each event on at once.",
}
"""With an answer."""

FORWARDED = {
    "x-request-id": "The request's name, unless the template sets this header.",
    "traceparent": "The attempt's span, where the template has `traces`.",
    "authorization": "The key, where the vendor wants it so; others are sent it as `x-api-key`,"
    " `api-key` or `x-goog-api-key`. Clouds get a token, or the request's signature.",
    "x-api-key": "The key, for Messages; from version `2026-10-21` on it is in `authorization`.",
    "x-goog-api-key": "The key, for Gemini.",
    "api-key": "The key, for Azure.",
    "anthropic-version": "The client's, or the template's `version`, which is `2023-06-01`.",
    "anthropic-beta": "The client's, and the template's `betas`. Where thoughts go back to a model"
    " that binds them, `thinking-binding-controls-2026-08-01`.",
    "api-revision": "Of Google's Interactions API: the client's, or `2026-05-20`.",
}
"""To vendors, besides what `headers` in a provider's `config` adds."""

OF_VENDORS = {
    "apim-request-id": "Azure's name for a request; told as `x-upstream-request-id`.",
    "x-amzn-requestid": "AWS's name for a request; told as `x-upstream-request-id`.",
    "x-amzn-errortype": "What kind of error AWS's answer is.",
    "x-content-type-options": "With the page's files: `nosniff`.",
    "x-goog-upload-command": "What a file that is sent to Google is to begin with, or to end.",
    "x-goog-upload-header-content-length": "How large a file is that is sent to Google.",
    "x-goog-upload-header-content-type": "What it is.",
    "x-goog-upload-offset": "Where it begins: at 0.",
    "x-goog-upload-protocol": "How it is sent: `resumable`.",
    "x-goog-upload-url": "Where Google wants it.",
    "x-subscription-token": "The key of Brave's search, where `server.tools.web_search` has one.",
}
"""Others that the code names."""

INTRODUCTION = """\
Names are in lower case here; HTTP does not tell the difference. What a template's `headers` adds is
sent to vendors as well. Of a vendor's answer, a client gets the vendor's request id,
`retry-after`, `x-ratelimit-*`, `anthropic-ratelimit-*` and `openai-processing-ms`, and no others.

For example, of a model with two targets:

```text
x-request-id: req_4f0c6d1e2b7a
x-llama-compat-provider: gpu-box
x-llama-compat-target: gpu-box/meta-llama/Llama-3.3-70B-Instruct
x-llama-compat-attempts: 2
x-llama-compat-skipped: anthropic/claude-sonnet-5-5 (logprobs)
```"""


def page() -> str:
    """The headers."""
    return page_of(
        "HTTP headers",
        INTRODUCTION,
        "## In a request",
        _table(UNDERSTOOD),
        "## In an answer",
        _table(SENT),
        "## To a vendor",
        _table(FORWARDED),
    )


def _table(headers: dict[str, str]) -> str:
    rows = [(code(name), what) for name, what in headers.items()]
    return table(("header", "what it says"), rows)
