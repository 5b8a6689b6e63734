package command

import (
	"fmt"
	"runtime"
	"runtime/debug"

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
		RunE: func(*cobra.Command, []string) error {
			if c.json {
				return printJSON(readBuildInfo())
			}
			return writeOutput(fmt.Appendf(nil, "holdfast %v\n", readBuildInfo()))
		},
	}
	cmd.Flags().BoolVar(&c.json, "json", false, "one JSON object")
	return cmd
}

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
	commit := ""
	if b.Revision != "" {
		commit = fmt.Sprintf(" (commit %.12s)", b.Revision)
	}
	if b.Modified {
		commit = fmt.Sprintf(" (commit %.12s with changes)", b.Revision)
	}
	return fmt.Sprintf("%s%s %s %s/%s", b.Version, commit, b.Go, b.OS, b.Arch)
}
