#!/bin/sh
# Installs what pip cannot, from Debian's packages, and only what is missing. Needs root for that.
#   scripts/install-system.sh java|postgresql|mariadb|node|venv …
set -eu

missing=""
for part in "$@"; do
  case $part in
    java)       command -v java >/dev/null 2>&1 || missing="$missing openjdk-17-jre-headless" ;;
    postgresql) command -v initdb >/dev/null 2>&1 || ls /usr/lib/postgresql/*/bin/initdb >/dev/null 2>&1 \
                  || missing="$missing postgresql" ;;
    mariadb)    PATH="$PATH:/usr/sbin" command -v mariadbd >/dev/null 2>&1 || missing="$missing mariadb-server" ;;
    # for Azurite, the server of the long tests of Azure
    node)       command -v npm >/dev/null 2>&1 || missing="$missing nodejs npm" ;;
    # ensurepip is what Debian's python3 alone lacks
    venv)       "${PYTHON:-python3}" -c "import ensurepip" 2>/dev/null || missing="$missing python3-venv" ;;
    *)          echo "install-system.sh: unknown part '$part'; known are java, postgresql, mariadb, node, venv" >&2; exit 64 ;;
  esac
done
[ -n "$missing" ] || exit 0

install="apt-get install -y --no-install-recommends$missing"
if [ "$(id -u)" != 0 ] || ! command -v apt-get >/dev/null 2>&1; then
  echo "Missing here:$missing. As root on Debian: $install" >&2
  exit 1
fi
echo "Installing:$missing" >&2
case $missing in
  # flowctl's tests start a server of their own; the package need not make and start one.
  *postgresql*) mkdir -p /etc/postgresql-common/createcluster.d
                echo "create_main_cluster = false" >/etc/postgresql-common/createcluster.d/flowctl.conf ;;
esac
# A headless JRE's packages want this folder, which slim images have removed.
mkdir -p /usr/share/man/man1
export DEBIAN_FRONTEND=noninteractive
apt-get update -qq
# shellcheck disable=SC2086  # a list of words
$install >/dev/null
echo "Installed:$missing" >&2
