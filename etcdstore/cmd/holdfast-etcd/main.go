// Holdfast-etcd is holdfast with the store in etcd. Holdfast executes it for --store etcd://….
package main

import (
	_ "github.com/holdfast-go/holdfast/etcdstore" // etcd: and etcds:
	"github.com/holdfast-go/holdfast/internal/command"
)

func main() { command.Main() }
