#!/bin/sh
# Installs the servers that the tests run, where they are missing: on Debian and
# Ubuntu with apt-get, on macOS with Homebrew. It does nothing if all are there.
# The tests start servers of their own: the services of the packages stay off.
set -eu

# The tests run redis-py as well, as somebody else's client. The name of the
# interpreter of the system comes first: another one may not see its packages.
python() { [ -x /usr/bin/python3 ] && /usr/bin/python3 -c 'import redis' || python3 -c 'import redis'; }

have() { command -v "$1" >/dev/null 2>&1; }

if have redis-server && python 2>/dev/null; then
	exit 0
fi

if have apt-get; then
	root=
	if [ "$(id -u)" -ne 0 ]; then
		have sudo || { echo "install.sh: run as root, or install sudo: redis-server is missing" >&2; exit 1; }
		root=sudo
	fi
	$root apt-get update
	# RUNLEVEL keeps the package from starting its service.
	$root env DEBIAN_FRONTEND=noninteractive RUNLEVEL=1 apt-get install -y --no-install-recommends redis-server python3-redis
elif have brew; then
	brew install redis
	python3 -m pip install --user --break-system-packages redis
else
	echo "install.sh: no apt-get and no brew here: install Redis 6.2 or later so that redis-server is on the PATH" >&2
	exit 1
fi

have redis-server || { echo "install.sh: redis-server was installed but is not on the PATH" >&2; exit 1; }
