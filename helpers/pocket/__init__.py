"""The embedded models, under a million parameters each, and the seeded script that rebuilds them.

In: the generators of stage 01, of `extraction`, of `functions` and of `games`. Out: `model/`
(arithmetic, notebooks 01 to 06 and 08), `extraction_model/` (orders, notebook 07),
`functions_model/` (programs, notebook 09) `games_model/` (number guessing, notebook 10)
and `vision_model/` (pictures, notebook 11).
Nothing imports this folder at run time: the models are loaded by their paths.
"""
