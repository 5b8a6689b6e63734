// Holdfast holds a distributed lock while a command runs. See docs/cli.md, or run "holdfast
// help".
package main

import "github.com/holdfast-go/holdfast/internal/command"

func main() { command.Main() }
