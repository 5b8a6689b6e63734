#!/bin/sh
# Prints the path of an etcd server of a version, as in "etcd.sh v3.6.8", for the tests that run on
# another version than that of the system. It is built from its Go module, and kept in a cache
# folder.
set -eu

version=$1
server="${XDG_CACHE_HOME:-$HOME/.cache}/holdfast/etcd-$version"
if [ ! -x "$server" ]; then
	work=$(mktemp -d)
	trap 'rm -rf "$work"' EXIT
	mkdir -p "$(dirname "$server")"
	cat >"$work/main.go" <<'END'
package main

import (
	"os"

	"go.etcd.io/etcd/server/v3/etcdmain"
)

func main() { etcdmain.Main(os.Args) }
END
	(
		cd "$work"
		export GOWORK=off GOFLAGS=-mod=mod
		go mod init etcd
		go get "go.etcd.io/etcd/server/v3@$version"
		CGO_ENABLED=0 go build -trimpath -ldflags="-s -w" -o etcd .
		mv etcd "$server"
	) >&2
fi
echo "$server"
