"""Tool calls inside text: one module a way in which models write them.

A model that has no tool-call API of its own writes its calls into its text, each family in its own
format. An engine uses a format in two places:

1. The prompt. Where the model's chat template takes `tools`, give them to it. Where it can't, give
   the template what `plain_messages(format, ...)` makes of the conversation: the tools are in the
   system message, and earlier calls and answers are text.
2. The reply. `reply_parser(...)` makes a parser for one reply; push every piece of text into it as
   it is generated, pass its deltas on, and at the end pass on what `flush` gives::

       parser = reply_parser(FORMATS["hermes"], request.tools, prompt=prompt)
       for text in pieces:
           for delta in parser.push(text):
               yield StreamProgress(delta)
       for delta in parser.flush():
           yield StreamProgress(delta)

   The text must hold the format's markers, several of which are special tokens (Llama's
   `<|python_tag|>`, Mistral's `[TOOL_CALLS]`), but no end-of-turn token. `parser.called` says
   whether the reply has called a tool: it then ends with `StopReason.end_of_message`.

   Where a call is demanded, an engine that can make a reply begin with a given text makes it begin
   with the format's `call_opening`, and reads it with a `ForcedCallParser`.
"""

from llama_compat.tools.formats.base import TextParser, ToolFormat
from llama_compat.tools.formats.forced_call import ForcedCallParser
from llama_compat.tools.formats.prompts import plain_messages
from llama_compat.tools.formats.registry import FORMATS, guess_tool_format
from llama_compat.tools.formats.reply import ReplyParser, reply_parser

__all__ = [
    "FORMATS",
    "ForcedCallParser",
    "ReplyParser",
    "TextParser",
    "ToolFormat",
    "guess_tool_format",
    "plain_messages",
    "reply_parser",
]
