package command

import (
	"bytes"
	"encoding/json"
	"fmt"
	"os"
	"unicode"
	"unicode/utf16"
	"unicode/utf8"
)

// printJSON writes a value on one line of standard output.
func printJSON(v any) error {
	line, err := jsonLine(v)
	if err != nil {
		return exitErrorFor(err)
	}
	return writeOutput(line)
}

// jsonLine encodes a value on one line, without a character that a terminal might take for a
// command.
func jsonLine(v any) ([]byte, error) {
	var text bytes.Buffer
	encoder := json.NewEncoder(&text)
	encoder.SetEscapeHTML(false) // names are easier to find
	if err := encoder.Encode(v); err != nil {
		return nil, err
	}
	var line []byte
	for _, r := range text.String() {
		switch {
		case r == '\n' || unicode.IsPrint(r):
			line = utf8.AppendRune(line, r)
		case r > 0xffff:
			high, low := utf16.EncodeRune(r)
			line = fmt.Appendf(line, `\u%04x\u%04x`, high, low)
		default:
			line = fmt.Appendf(line, `\u%04x`, r)
		}
	}
	return line, nil
}

// writeOutput writes data to standard output.
func writeOutput(data []byte) error {
	if _, err := os.Stdout.Write(data); err != nil {
		return &exitError{exitOutput, err, ""}
	}
	return nil
}

// An outputFunc is a writer that cannot write less than all.
type outputFunc func(data []byte) error

func (f outputFunc) Write(data []byte) (int, error) { return len(data), f(data) }
