// Holdfast-etcd is holdfast with the store in etcd. Holdfast executes it for --store etcd://….
package main

import (
	_ "github.com/holdfast-go/holdfast/etcdstore"            // etcd: and etcds:
	_ "github.com/holdfast-go/holdfast/etcdstore/etcddoctor" // their checks
	"github.com/holdfast-go/holdfast/internal/command"
)

func main() { command.Main() }
