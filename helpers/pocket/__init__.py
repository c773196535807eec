"""The pocket models, under a million parameters each, which are loaded by their paths: `model/`
(arithmetic, notebooks 01 to 06 and 08), `extraction_model/` (orders, 07), `functions_model/`
(programs, 09), `games_model/` (number guessing, 10) and `vision_model/` (pictures, 11).

`tools/pocket/` builds them again.
"""
