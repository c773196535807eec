"""What those who maintain the project and teach with it use, each by `python -m tools.NAME`.

- `tools/pocket/`: the pocket models, built again.
- `demo`: the finished run that comes with the project, packed.
- `mutations`: what share of small mistakes in `helpers/` the tests notice.
- `teach`: editions of the notebooks for a class; `slides`: a route of the teaching guide as slides.

The notebooks import nothing from here, so a wheel does not hold this folder. The tests are in
`tests/tools/`.
"""
