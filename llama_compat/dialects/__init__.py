"""One module or package a wire language; each translates between its wire and `llama_compat.types`.

| function | direction |
|---|---|
| `parse_request` | wire -> vocabulary, what comes in |
| `render_reply`, `StreamRenderer` | vocabulary -> wire, what goes out |
| `render_request` | vocabulary -> wire, what a remote provider sends |
| `parse_reply`, `StreamParser` | wire -> vocabulary, what a remote provider gets |

A dialect implements the directions in which it is used, and knows nothing of HTTP, routing or
models.
"""
