#!/bin/sh
# Installs into .venv. `make setup` runs it.
# PYTHON=python3.12 ./install.sh takes another Python; --gpu is that of `python -m helpers install`.
set -eu
CDPATH='' cd -- "$(dirname -- "$0")"
python=${PYTHON:-python3}
fits='import sys; sys.exit(not (3, 11) <= sys.version_info[:2] <= (3, 13))'
version='import sys; print("%d.%d" % sys.version_info[:2])'
if test -x .venv/bin/pip; then
  .venv/bin/python -c "$fits" || {
    echo "The Python of .venv is gone, or not 3.11 to 3.13. Delete it (rm -r .venv), then run this again." >&2
    exit 1
  }
  has=$(.venv/bin/python -c "$version")
  asked=$("$python" -c "$version" 2>/dev/null || echo "$python")
  test -z "${PYTHON:-}" || test "$has" = "$asked" ||
    echo "note: .venv is there, with Python $has, and is used. For Python $asked, delete it first (rm -r .venv)." >&2
else
  "$python" -c "$fits" || {
    echo "Python 3.11 to 3.13 is needed, and $python is none of them. Name one: put PYTHON=python3.12 before the command." >&2
    exit 1
  }
  "$python" -m venv .venv
fi
.venv/bin/python -m helpers install "$@"
touch .venv/.ready
