"""Which tokens of which sequences a step computes, where their keys lie, and what is drawn."""
