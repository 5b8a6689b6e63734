package servers

import (
	"fmt"
	"os"
	"strings"
)

// alive reports whether a process runs; a zombie does not.
func alive(pid int) bool {
	s := state(pid)
	return s != 0 && s != 'Z'
}

// state returns the state of a process in the kernel: T if it is stopped, 0 if there is none.
func state(pid int) byte {
	text, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", pid))
	if err != nil {
		return 0
	}
	_, after, _ := strings.Cut(string(text), ") ")
	return after[0]
}
