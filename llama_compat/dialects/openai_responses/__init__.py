"""OpenAI's Responses API (https://platform.openai.com/docs/api-reference/responses) as a way in.

`items_in` and `tools` read what a request holds, `requests` the whole of it; `items_out`, `streams`
and `response_object` are the way back; `operations` has the rows. The rules that OpenAI's reference
leaves open are those of https://www.openresponses.org/specification.
"""
