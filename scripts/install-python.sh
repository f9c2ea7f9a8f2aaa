#!/bin/sh
# Makes a virtual environment with flowctl, all its connectors and pinned dependencies.
#   scripts/install-python.sh FOLDER dev      for working on it: editable, with the tools
#   scripts/install-python.sh FOLDER image    for running it: as users get it
set -eu
folder=$1 kind=$2
here=$(cd "$(dirname "$0")/.." && pwd)
python=${PYTHON:-python3}

"$python" -c 'import sys; sys.exit(sys.version_info < (3, 11))' || {
  echo "flowctl needs Python 3.11 or newer; $python is $("$python" -V 2>&1). Set PYTHON to another one." >&2
  exit 1
}
# Constraints hold for the environments that packages are built in, too.
export PIP_CONSTRAINT="$here/constraints.txt" PIP_DISABLE_PIP_VERSION_CHECK=1
echo "Installing Python packages into $folder (some minutes the first time) …" >&2
[ -x "$folder/bin/python" ] || "$python" -m venv "$folder"
"$folder/bin/python" -m pip install -q pip
case $kind in
  dev)   (cd "$here" && "$folder/bin/python" -m pip install -q --group dev -e ".[all]") ;;
  image) "$folder/bin/python" -m pip install -q "$here[all]" ;;
  *)     echo "install-python.sh: unknown kind '$kind'; known are dev, image" >&2; exit 64 ;;
esac
