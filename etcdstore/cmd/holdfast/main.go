// Holdfast with the store in etcd: the same program as cmd/holdfast, for --store etcd://… as well.
// It is larger and starts slower.
package main

import (
	_ "github.com/holdfast-go/holdfast/etcdstore" // etcd: and etcds:
	"github.com/holdfast-go/holdfast/internal/command"
)

func main() { command.Main() }
