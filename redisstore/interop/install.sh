#!/bin/sh
# Installs the lock clients of npm that the tests run, with the versions of the
# lock file, into node_modules here, and Node.js where it is missing. It does
# nothing if all are there.
set -eu
cd "$(dirname "$0")"

have() { command -v "$1" >/dev/null 2>&1; }

if ! have node || ! have npm; then
	if have apt-get; then
		sudo=
		[ "$(id -u)" = 0 ] || sudo=sudo
		$sudo apt-get update -q
		$sudo env DEBIAN_FRONTEND=noninteractive apt-get install -qy --no-install-recommends nodejs npm
	elif have brew; then
		brew install node
	else
		echo "interop/install.sh: no apt-get and no brew here: install Node.js 14 or later, with npm" >&2
		exit 1
	fi
fi

# npm writes the first of these files when it has done its work.
if [ ! node_modules/.package-lock.json -nt package-lock.json ]; then
	npm ci --ignore-scripts --no-audit --no-fund
fi
