package command

import (
	"bytes"
	"cmp"
	"context"
	"fmt"
	"time"

	"github.com/spf13/cobra"

	"github.com/holdfast-go/holdfast"
	"github.com/holdfast-go/holdfast/doctor"
	"github.com/holdfast-go/holdfast/internal/lockview"
)

// A doctorCommand is the flags of "holdfast doctor".
type doctorCommand struct {
	*cli
	strict  bool
	noProbe bool
	ttl     time.Duration
}

func newDoctor(c *cli) *cobra.Command {
	d := &doctorCommand{cli: c}
	cmd := &cobra.Command{
		Use:   "doctor",
		Short: "Examine a store for what endangers locks",
		Long: `Doctor examines the store for what endangers locks: the settings of its servers,
the rights of the user, how long requests take, whether a lock can be taken,
refuses another owner and is released, whether a waiter is notified of that, and
whether the clocks agree. Each finding is a line: how bad it is, the check, and
what was found; below it what is wanted, and the command that mends it. They are
  ok       as it should be
  note     something to know, and nothing to mend
  unknown  it cannot be told, mostly for want of a right
  warn     locks work, and a crash, a failover or another user may cost some
  fail     locks do not work, or two may hold one lock

It takes locks below holdfast-doctor/, each for a moment, and releases them;
with --no-probe it only reads. --ttl is the shortest of your locks: a slow
network is bad for short ones only.

Exit code: 0 if there is nothing above unknown; or
    1  there is a warning, or with --strict something that cannot be told
    2  there is a failure, or with --strict a warning`,
		Example: `  holdfast doctor --store redis://cache:6379 --ttl 10s
  holdfast doctor --strict -q --store "$LOCKS" || exit   # in CI
  holdfast doctor --json | jq -r 'select(.status == "fail") | .remedy'`,
		Args:    arguments(0, 0),
		PreRunE: func(*cobra.Command, []string) error { return checkTTL(d.ttl) },
		RunE:    d.onStore(d.examine),
	}
	f := cmd.Flags()
	f.BoolVar(&c.json, "json", false, "one JSON object per line")
	f.BoolVar(&d.strict, "strict", false, "warnings are failures, and what cannot be told is a warning, for the exit code")
	f.BoolVar(&d.noProbe, "no-probe", false, "take no lock, and write nothing")
	durationVar(f, &d.ttl, "ttl", holdfast.DefaultTTL, "the shortest TTL of your locks")
	return cmd
}

func (d *doctorCommand) examine(ctx context.Context, client *holdfast.Client, _ []string) error {
	findings, err := doctor.Examine(ctx, client.Store(), &doctor.Options{TTL: d.ttl, NoProbe: d.noProbe})
	if err := cmp.Or(d.printFindings(client.Guarantees().Store, findings), err); err != nil {
		return err
	}
	count := map[doctor.Severity]int{}
	for _, f := range findings {
		count[f.Severity]++
	}
	failures, warnings, unknown := count[doctor.Failure], count[doctor.Warning], count[doctor.Unknown]
	err = fmt.Errorf("%d checks: %d fail, %d warn, %d unknown", len(findings), failures, warnings, unknown)
	switch {
	case failures > 0, d.strict && warnings > 0:
		return &exitError{exitUnfit, err, ""}
	case warnings > 0, d.strict && unknown > 0:
		return &exitError{exitWarned, err, ""}
	}
	return nil
}

func (d *doctorCommand) printFindings(store string, findings []doctor.Finding) error {
	var out bytes.Buffer
	width := 0
	for _, f := range findings {
		width = max(width, len(f.Check))
	}
	for _, f := range findings {
		f.Found = oneLine(f.Found)
		if d.json {
			out.Write(jsonLine(struct {
				doctor.Finding
				Store string `json:"store"`
			}{f, store}))
			continue
		}
		if f.Server != "" {
			f.Found = f.Server + ": " + f.Found
		}
		fmt.Fprintf(&out, "%-7s  %-*s  %s\n", f.Severity, width, f.Check, lockview.Readable(f.Found))
		if f.Want != "" {
			fmt.Fprintf(&out, "         %*s  want: %s\n", width, "", lockview.Readable(f.Want))
		}
		if f.Remedy != "" {
			fmt.Fprintf(&out, "         %*s  try: %s\n", width, "", lockview.Readable(f.Remedy))
		}
	}
	return writeOutput(out.Bytes())
}
