//go:build unix

package docs

import (
	"flag"
	"fmt"
	"html"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
)

var updateTakeover = flag.Bool("update", false, "make pictures/takeover.svg anew")

// TestTakeover runs pictures/takeover.sh with the real command, and checks that
// pictures/takeover.svg shows what it printed.
func TestTakeover(t *testing.T) {
	bin := buildCommand(t)
	script, err := filepath.Abs("pictures/takeover.sh")
	if err != nil {
		t.Fatal(err)
	}
	cmd := exec.Command("sh", script)
	cmd.Env = append(os.Environ(), "PATH="+bin+":"+os.Getenv("PATH"), "HOME="+t.TempDir(), "HOLDFAST_STORE=file:")
	cmd.Stderr = os.Stderr
	out, err := cmd.Output()
	if err != nil {
		t.Fatalf("%v\n%s", err, out)
	}
	// A token is a time in microseconds: the picture counts from 41.
	short := map[string]string{}
	events := regexp.MustCompile(`\b\d{16}\b`).ReplaceAllStringFunc(string(out), func(token string) string {
		if short[token] == "" {
			short[token] = fmt.Sprint(41 + len(short))
		}
		return short[token]
	})
	svg := drawTakeover(strings.Split(strings.TrimSuffix(events, "\n"), "\n"))
	const file = "pictures/takeover.svg"
	if *updateTakeover {
		if err := os.WriteFile(file, []byte(svg), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	if present, err := os.ReadFile(file); err != nil || string(present) != svg {
		t.Errorf("%s does not show this (%v); go test ./docs -run %s -update makes it anew:\n%s", file, err, t.Name(), events)
	}
}

// drawTakeover draws the two terminals. Each line appears when it happens, and all of them are
// there where nothing moves: in print, and where the system is set to reduced motion.
func drawTakeover(events []string) string {
	const step, rest = 1.6, 5.0 // seconds
	length := step*float64(len(events)) + rest
	var lines, styles strings.Builder
	for i, event := range events {
		who, kind, text := event[:1], event[2:3], event[4:]
		x := map[string]int{"A": 24, "B": 436}[who]
		class := map[string]string{"$": "typed", ">": "output", "-": "dim"}[kind]
		switch {
		case strings.HasPrefix(text, "refused"):
			class = "bad"
		case strings.HasPrefix(text, "written"):
			class = "good"
		}
		if kind == "$" {
			text = "$ " + text
		}
		begin := 100 * step * float64(i) / length
		fmt.Fprintf(&styles, "@keyframes e%d { 0%%, %.1f%% { opacity: 0 } %.1f%%, 100%% { opacity: 1 } }\n", i, begin, begin+1)
		fmt.Fprintf(&lines, "<text class=\"%s\" style=\"animation-name: e%d\" x=\"%d\" y=\"%d\">%s</text>\n", class, i, x, 72+22*i, html.EscapeString(text))
	}
	height := 72 + 22*len(events)
	return fmt.Sprintf(`<svg xmlns="http://www.w3.org/2000/svg" width="830" height="%[1]d" viewBox="0 0 830 %[1]d" role="img">
<title>Holder A is stopped, B takes over, and the late write of A is refused</title>
<style>
text { font: 13px ui-monospace, "DejaVu Sans Mono", monospace; fill: #1f2328 }
.title { font: 600 14px system-ui, "DejaVu Sans", sans-serif }
.dim { fill: #59636e; font-style: italic } .bad { fill: #c21c28 } .good { fill: #19722f } .typed { font-weight: 600 }
.card { fill: #ffffff; stroke: #d1d9e0 }
@media (prefers-color-scheme: dark) {
text { fill: #f0f6fc } .dim { fill: #a5aeb8 } .bad { fill: #ff8b85 } .good { fill: #56d06c }
.card { fill: #0d1117; stroke: #3d444d }
}
@media (prefers-reduced-motion: no-preference) { text { animation: %[2]gs linear infinite } }
%[3]s</style>
<rect class="card" x="0.5" y="0.5" width="411" height="%[4]d" rx="8"/>
<rect class="card" x="417.5" y="0.5" width="411" height="%[4]d" rx="8"/>
<text class="title" x="24" y="34">A</text>
<text class="title" x="436" y="34">B</text>
%[5]s</svg>
`, height, length, styles.String(), height-1, lines.String())
}
