"""The files of vector stores: how far each has come, whose work it is meanwhile, and its pieces.

`rows` is what the tables say, and `key_room` how much more a key may have. `table` is what clients
put in, see and take out, `batches` what they put in together. `work` is what workers do to a file,
and `removal` what is forgotten of those that were taken out.
"""
