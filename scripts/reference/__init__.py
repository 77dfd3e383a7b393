"""The reference pages of the documentation, as the code has it: `make reference` writes them.

A page is a function that gives its text; `pages` lists them. What the code does not say of itself
(what causes an error, what a header means) is a table in here, which a test holds against the code.
"""
