"""The embedded models, under a million parameters each, and the seeded script that rebuilds them.

In: the generators of stage 01 and of `extraction`. Out: `model/` (arithmetic, notebooks 01 to 06 and 08) and
`extraction_model/` (orders, notebook 07). Nothing imports this folder at run time: the models are loaded by their paths.
"""
