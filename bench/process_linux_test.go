package main

import (
	"os"
	"testing"

	"github.com/holdfast-go/holdfast/internal/servers"
)

// A process has memory and has used time, and so has a server with its children.
func TestProcessUsage(t *testing.T) {
	server := servers.StartPostgres(t)
	for what, pid := range map[string]int{"this process": os.Getpid(), "PostgreSQL": server.PID()} {
		cpu, memory := processUsage(pid)
		if cpu < 0 || memory < 1<<20 {
			t.Errorf("%s: %v s, %v B", what, cpu, memory)
		}
	}
	if threadTime(os.Getpid()) <= 0 {
		t.Error("this process has used no time")
	}
}
