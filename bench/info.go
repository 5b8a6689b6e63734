//go:build unix

package main

import (
	"strings"

	"github.com/holdfast-go/holdfast/internal/servers"
)

// infoText returns a field of INFO.
func infoText(server *servers.Redis, name string) string {
	for line := range strings.Lines(server.Do("INFO")) {
		if value, ok := strings.CutPrefix(line, name+":"); ok {
			return strings.TrimSpace(value)
		}
	}
	return ""
}
