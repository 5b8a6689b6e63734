package command

import (
	"fmt"
	"runtime"
	"runtime/debug"

	"github.com/spf13/cobra"
)

// A buildInfo describes the program, as --json shows it. The version of one that is not of a
// release names its commit.
type buildInfo struct {
	Version string `json:"version"`
	Go      string `json:"go"`
	OS      string `json:"os"`
	Arch    string `json:"arch"`
}

func newVersion(c *cli) *cobra.Command {
	cmd := &cobra.Command{
		Use:   "version",
		Short: "Tell which version this is",
		Long:  "Version prints the version, the version of Go, and the platform. The version of\na program that is not of a release names the commit it was built from.",
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
	b := buildInfo{"unknown", runtime.Version(), runtime.GOOS, runtime.GOARCH}
	if info, ok := debug.ReadBuildInfo(); ok && info.Main.Version != "" {
		b.Version = info.Main.Version
	}
	return b
}

func (b buildInfo) String() string { return fmt.Sprintf("%s %s %s/%s", b.Version, b.Go, b.OS, b.Arch) }
