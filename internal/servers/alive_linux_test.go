package servers

import (
	"fmt"
	"os"
	"strings"
)

// alive reports whether a process runs; a zombie does not.
func alive(pid int) bool {
	text, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", pid))
	if err != nil {
		return false
	}
	_, after, _ := strings.Cut(string(text), ") ")
	return !strings.HasPrefix(after, "Z")
}
