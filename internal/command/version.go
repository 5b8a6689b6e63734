package command

import (
	"fmt"
	"runtime"
	"runtime/debug"
	"strings"

	"github.com/spf13/cobra"
)

// A buildInfo describes the program, as --json shows it.
type buildInfo struct {
	Version  string `json:"version"`
	Revision string `json:"revision,omitempty"`
	Modified bool   `json:"modified,omitempty"`
	Time     string `json:"time,omitempty"`
	Go       string `json:"go"`
	OS       string `json:"os"`
	Arch     string `json:"arch"`
}

func newVersion(c *cli) *cobra.Command {
	cmd := &cobra.Command{
		Use:   "version",
		Short: "Tell which version this is",
		Long:  "Version prints the version, the commit it was built from, the version of Go, and\nthe platform.",
		Args:  arguments(0, 0),
		RunE: func(cmd *cobra.Command, _ []string) error {
			if c.json {
				return c.finalError(cmd.Context(), printJSON(readBuildInfo()))
			}
			return c.finalError(cmd.Context(), printVersion())
		},
	}
	cmd.Flags().BoolVar(&c.json, "json", false, "one JSON object")
	return cmd
}

// addVersionFlag adds "holdfast --version", which many users try first.
func (c *cli) addVersionFlag(root *cobra.Command) {
	var wanted bool
	root.Flags().BoolVar(&wanted, "version", false, "print the version")
	otherwise := root.RunE
	root.RunE = func(cmd *cobra.Command, args []string) error {
		if wanted {
			return c.finalError(cmd.Context(), printVersion())
		}
		return otherwise(cmd, args)
	}
}

func printVersion() error { return writeOutput([]byte(readBuildInfo().String() + "\n")) }

// readBuildInfo returns what the linker has left in the program.
func readBuildInfo() buildInfo {
	b := buildInfo{Version: "unknown", Go: runtime.Version(), OS: runtime.GOOS, Arch: runtime.GOARCH}
	info, ok := debug.ReadBuildInfo()
	if !ok {
		return b
	}
	if info.Main.Version != "" {
		b.Version = info.Main.Version
	}
	for _, s := range info.Settings {
		switch s.Key {
		case "vcs.revision":
			b.Revision = s.Value
		case "vcs.modified":
			b.Modified = s.Value == "true"
		case "vcs.time":
			b.Time = s.Value
		}
	}
	return b
}

func (b buildInfo) String() string {
	words := []string{"holdfast", b.Version}
	if b.Revision != "" {
		commit := "commit " + b.Revision[:min(12, len(b.Revision))]
		if b.Modified {
			commit += " with changes"
		}
		words = append(words, "("+commit+")")
	}
	return fmt.Sprintf("%s %s %s/%s", strings.Join(words, " "), b.Go, b.OS, b.Arch)
}
