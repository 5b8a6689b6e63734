#!/bin/sh
# Installs the servers that the tests run, where they are missing: on Debian and
# Ubuntu with apt-get, on macOS with Homebrew. It does nothing if all are there.
# The tests start servers of their own: the services of the packages stay off.
set -eu

# The tests run redis-py and psycopg as well, as somebody else's clients. The
# name of the interpreter of the system comes first: another one may not see its
# packages.
python() { [ -x /usr/bin/python3 ] && /usr/bin/python3 -c "import $1" || python3 -c "import $1"; }

# Not every system has all of these folders on the PATH.
have() { PATH="$PATH:/usr/sbin" command -v "$1" >/dev/null 2>&1; }

postgres() {
	for program in /usr/lib/postgresql/*/bin/postgres /opt/homebrew/opt/postgresql@*/bin/postgres /usr/local/opt/postgresql@*/bin/postgres; do
		[ ! -x "$program" ] || return 0
	done
	have postgres && have initdb
}

complete() { have redis-server && postgres && have pgbouncer && have etcd && python redis 2>/dev/null && python psycopg 2>/dev/null; }

if complete; then
	exit 0
fi

if have apt-get; then
	root=
	if [ "$(id -u)" -ne 0 ]; then
		have sudo || { echo "install.sh: run as root, or install sudo: servers are missing" >&2; exit 1; }
		root=sudo
	fi
	$root apt-get update
	# RUNLEVEL keeps the packages from starting their services.
	$root env DEBIAN_FRONTEND=noninteractive RUNLEVEL=1 apt-get install -y --no-install-recommends \
		redis-server python3-redis postgresql pgbouncer python3-psycopg etcd-server
elif have brew; then
	brew install redis postgresql@15 pgbouncer etcd
	python3 -m pip install --user --break-system-packages redis 'psycopg[binary]'
else
	echo "install.sh: no apt-get and no brew here: install Redis 6.2, PostgreSQL 14, PgBouncer 1.18 and etcd 3.4 or later," \
		"so that their programs are on the PATH, and redis-py and psycopg 3 for python3" >&2
	exit 1
fi

complete || { echo "install.sh: something is still missing, or not on the PATH" >&2; exit 1; }
