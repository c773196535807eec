"""Run what a policy wrote: many programs at once, each in a sandbox, and only plain data comes out.

- `sandbox`: a program and its inputs, its limits, its outcome, and many of them at once.
- `monty`, `sandlock`: the two back ends; `driver` is the program inside sandlock.
- `unit_tests`: the tests of a row, as data; `rewards`: the share of them that a program passes.

Left out: a bare subprocess (it isolates nothing), containers (they need privileges), and replacing
one back end by another (a verdict must not depend on what is installed).
"""
