#!/bin/sh
# Installs into .venv, from the wheels of a bundle where they lie beside this file, and else from the network. `make setup` runs it.
# PYTHON=python3.12 ./install.sh takes another Python; --optional and --gpu are those of `python -m helpers install`.
set -eu
CDPATH='' cd -- "$(dirname -- "$0")"
python=${PYTHON:-python3}
"$python" -c 'import sys; sys.exit(sys.version_info < (3, 11))' || {
  echo "Python 3.11 or newer is needed, and $python is none. Name one: put PYTHON=python3.12 before the command." >&2
  exit 1
}
test -x .venv/bin/pip || "$python" -m venv .venv
.venv/bin/python -m helpers install "$@"
touch .venv/.ready
