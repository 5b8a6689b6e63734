package lockui

import (
	"bytes"
	"fmt"
	"html"

	"github.com/holdfast-go/holdfast/internal/lockview"
)

// A literal is HTML that is written in this package. Only a constant becomes one without a
// conversion, so that text of a store cannot. (Package html/template would do the same at run time,
// but a program that links it keeps all exported methods of all its types.)
type literal string

// A fragment is HTML that a markup has made.
type fragment string

// A markup is HTML under construction.
type markup struct{ bytes.Buffer }

// add writes a format of package fmt. Arguments that are strings are escaped, for text and for
// quoted attributes; a string in a URL must be escaped for that before.
func (m *markup) add(format literal, args ...any) {
	for i, arg := range args {
		switch arg := arg.(type) {
		case string:
			args[i] = html.EscapeString(lockview.Readable(arg))
		case literal, fragment, int, int64:
		default:
			panic(fmt.Sprintf("lockui: %T in HTML", arg))
		}
	}
	_, _ = fmt.Fprintf(m, string(format), args...) // to memory
}

func (m *markup) fragment() fragment { return fragment(m.String()) }
