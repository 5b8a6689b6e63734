package command

import (
	"bytes"
	"cmp"
	"encoding/json"
	"fmt"
	"os"
	"unicode"
	"unicode/utf16"
	"unicode/utf8"
)

// printJSON writes a value on one line of standard output.
func printJSON(v any) error {
	return writeOutput(jsonLine(v))
}

// jsonLine encodes a value on one line, without a character that a terminal might take for a
// command.
func jsonLine(v any) (line []byte) {
	var text bytes.Buffer
	encoder := json.NewEncoder(&text)
	encoder.SetEscapeHTML(false) // names are easier to find
	_ = encoder.Encode(v)        // of texts, numbers and times that JSON can represent
	for _, r := range text.String() {
		if r == '\n' || unicode.IsPrint(r) {
			line = utf8.AppendRune(line, r)
			continue
		}
		for _, unit := range utf16.AppendRune(nil, r) {
			line = fmt.Appendf(line, `\u%04x`, unit)
		}
	}
	return line
}

// writeOutput writes data to standard output.
func writeOutput(data []byte) error {
	if _, err := os.Stdout.Write(data); err != nil {
		return &exitError{exitOutput, err, ""}
	}
	return nil
}

// An output is standard output for cobra, which ignores errors: of help and completions.
type output struct{ err error }

func (o *output) Write(data []byte) (int, error) {
	o.err = cmp.Or(o.err, writeOutput(data))
	return len(data), nil
}
