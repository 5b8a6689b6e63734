//go:build unix

package torture

import (
	"os"
	"path/filepath"
	"slices"
	"testing"
)

// The successor of a process that was killed while it wrote a line continues its log.
func TestLogOfAKilledProcess(t *testing.T) {
	for _, tt := range []struct{ name, log string }{
		{"empty", ""},
		{"complete", `{"at":1,"step":"begins"}` + "\n"},
		{"interrupted", `{"at":1,"step":"begins"}` + "\n" + `{"at":2,"st`},
		{"first line interrupted", `{"a`},
	} {
		t.Run(tt.name, func(t *testing.T) {
			path := filepath.Join(t.TempDir(), "process-1.jsonl")
			if err := os.WriteFile(path, []byte(tt.log), 0o600); err != nil {
				t.Fatal(err)
			}
			l, err := openEventLog(path)
			if err != nil {
				t.Fatal(err)
			}
			l.appendEvent(Event{At: 3, Step: Ends})
			if err := l.close(); err != nil {
				t.Fatal(err)
			}
			var got []Event
			if err := readEventLog(path, func(e Event) { got = append(got, e) }); err != nil {
				t.Fatal(err)
			}
			if at := slices.IndexFunc(got, func(e Event) bool { return e.Step == Ends }); at != len(got)-1 {
				t.Errorf("the log has %v", got)
			}
		})
	}
}
