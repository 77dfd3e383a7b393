"""Tool calls: their fragments put together, and the formats in which models write them."""
