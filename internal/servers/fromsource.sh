#!/bin/sh
# Prints the path of a server that is built from its Go module and kept in a cache folder, for tests:
# "fromsource.sh versitygw" of a server of S3, "fromsource.sh etcd v3.6.8" of a version of etcd.
set -eu

case $1 in
etcd) version=$2 module=go.etcd.io/etcd/server/v3 package= ;;
versitygw) version=v1.8.0 module=github.com/versity/versitygw package=/cmd/versitygw ;;
esac
server="${XDG_CACHE_HOME:-$HOME/.cache}/holdfast/$1-$version/$1"
if [ ! -x "$server" ]; then
	work=$(mktemp -d)
	trap 'rm -rf "$work"' EXIT
	mkdir -p "$(dirname "$server")"
	(
		cd "$work"
		export GOWORK=off GOFLAGS=-mod=mod
		go mod init test
		go get "$module$package@$version" # "go install" takes no module with a replace line.
		CGO_ENABLED=0 go build -trimpath -ldflags="-s -w" -o server "$module$package"
		mv server "$server"
	) >&2
fi
echo "$server"
