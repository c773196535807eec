#!/bin/sh
# Installs into .venv. `make setup` runs it.
# PYTHON=python3.12 ./install.sh takes another Python; --gpu is that of `python -m helpers install`.
set -eu
CDPATH='' cd -- "$(dirname -- "$0")"
python=${PYTHON:-python3}
new='import sys; sys.exit(sys.version_info < (3, 11))'
version='import sys; print("%d.%d" % sys.version_info[:2])'
if test -x .venv/bin/pip; then
  .venv/bin/python -c "$new" || {
    echo "The Python of .venv is gone, or older than 3.11. Delete it (rm -r .venv), then run this again." >&2
    exit 1
  }
  has=$(.venv/bin/python -c "$version")
  asked=$("$python" -c "$version" 2>/dev/null || echo "$python")
  test -z "${PYTHON:-}" || test "$has" = "$asked" ||
    echo "note: .venv is there, with Python $has, and is used. For Python $asked, delete it first (rm -r .venv)." >&2
else
  "$python" -c "$new" || {
    echo "Python 3.11 or newer is needed, and $python is none. Name one: put PYTHON=python3.12 before the command." >&2
    exit 1
  }
  "$python" -m venv .venv
fi
.venv/bin/python -m helpers install "$@"
touch .venv/.ready
