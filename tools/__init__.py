"""What those who maintain the project and teach with it use, each by `python -m tools.NAME`.

| what | file | tests |
|---|---|---|
| the embedded models, built again | `tools/pocket/` | `tests/tools/` |

The notebooks import nothing from here, so a wheel does not hold this folder.
"""
