package command

import "os"

// isClosed returns false: on Windows a write to a closed handle fails.
func isClosed(*os.File) bool { return false }
