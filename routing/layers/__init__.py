"""What a request passes on its way to a provider, one module a layer, put together by `chain`.

A layer is a `Handler` made of the next one: it may look at the request, answer it itself, or await
what the next one answers and see to that. It knows nothing of HTTP.
"""
