#!/bin/sh
# Prints the path of versitygw, a server of S3, for the tests that need a real one. It is built from
# its Go module, and kept in a cache folder.
set -eu

version=v1.8.0
folder="${XDG_CACHE_HOME:-$HOME/.cache}/holdfast/versitygw-$version"
if [ ! -x "$folder/versitygw" ]; then
	mkdir -p "$folder"
	(cd / && GOWORK=off GOFLAGS= GOBIN="$folder" CGO_ENABLED=0 go install -trimpath -ldflags="-s -w" "github.com/versity/versitygw/cmd/versitygw@$version") >&2
fi
echo "$folder/versitygw"
