"""A transformers model's weights as ours, a part a module: heads in our order, products merged that
take the same, factors multiplied in."""

from providers.local.torch_engine.loading.weights.decoder import decoder_of
from providers.local.torch_engine.loading.weights.ropes import in_order, order_of

__all__ = ["decoder_of", "in_order", "order_of"]
