#!/bin/sh
# Prints the path of a Valkey server, for the tests that run on a second kind of
# server. If none is on the PATH, the packages of Debian 13 are unpacked into a
# cache folder, with all the libraries they need: the server runs through the
# dynamic linker of that folder, and nothing of the system is replaced. It does
# nothing if the server is there already.
set -eu

release=trixie
advice="valkey.sh: no Valkey here: install valkey-server, so that it is on the PATH"

if command -v valkey-server; then
	exit 0
fi
cache="${XDG_CACHE_HOME:-$HOME/.cache}/holdfast/valkey-$release"
server="$cache/valkey-server"
if [ -x "$server" ]; then
	echo "$server"
	exit 0
fi
if command -v brew >/dev/null 2>&1; then
	brew list valkey >/dev/null 2>&1 || brew install valkey >&2
	echo "$(brew --prefix valkey)/bin/valkey-server"
	exit 0
fi
command -v apt-get >/dev/null 2>&1 && command -v dpkg >/dev/null 2>&1 || { echo "$advice" >&2; exit 1; }

# The mirror is the one that the system itself uses.
mirror() {
	apt-get indextargets --format '$(ORIGIN) $(LABEL) $(SITE)' 'Created-By: Packages' | sed -n '/^Debian Debian /{s///p;q;}'
}
site=$(mirror)
[ -n "$site" ] || { echo "$advice (the sources of apt name no mirror of Debian, or apt-get update has not been run)" >&2; exit 1; }

mkdir -p "$(dirname "$cache")"
work=$(mktemp -d "$cache.XXXXXX")
trap 'rm -rf "$work"' EXIT
mkdir -p "$work/state/lists/partial" "$work/cache/archives/partial" "$work/debs" "$work/root"
: >"$work/status"
echo "deb [signed-by=/usr/share/keyrings/debian-archive-keyring.gpg] $site $release main" >"$work/sources.list"

# No package counts as installed, so that everything that is needed is listed.
apt() {
	command=$1
	shift
	apt-get -qq -o "Dir::Etc::sourcelist=$work/sources.list" -o Dir::Etc::sourceparts=- \
		-o "Dir::State=$work/state" -o "Dir::State::status=$work/status" -o "Dir::Cache=$work/cache" \
		-o APT::Sandbox::User= "$command" "$@"
}
{
	apt update
	# Only the server and libraries are wanted, not what its package sets up.
	names=$(apt install --simulate --no-install-recommends valkey-server |
		sed -n 's/^Inst \([^ ]*\).*/\1/p' | grep -E '^(lib|zlib1g|valkey-)')
	# shellcheck disable=SC2086 # one word for each package
	(cd "$work/debs" && apt download $names)
} >&2
for deb in "$work"/debs/*.deb; do
	dpkg -x "$deb" "$work/root"
done

libraries="usr/lib/$(basename "$(dirname "$(find "$work/root/usr/lib" -name libc.so.6)")")"
linker="$libraries/$(basename "$(find "$work/root/$libraries" -name 'ld-linux*.so.*')")"
cat >"$work/root/valkey-server" <<END
#!/bin/sh
exec "$cache/$linker" --library-path "$cache/$libraries" "$cache/usr/bin/valkey-server" "\$@"
END
chmod +x "$work/root/valkey-server"

# If another process was faster, its folder stays.
mv -T "$work/root" "$cache" 2>/dev/null || [ -x "$server" ]
"$server" --version >&2
echo "$server"
