"""Run programs that a policy wrote, each in a sandbox, and compare what they return.

- `unit_tests`: reads the tests of a row as data.
- `sandbox`: runs many programs at once. `monty` and `sandlock` are its back ends, and `driver` is
  the program that runs inside sandlock.

Left out: a bare subprocess, which isolates nothing; containers, which need privileges; and falling
back from one back end to the other, because a verdict must not depend on what is installed.
"""
