//go:build unix

package torture

import (
	"bufio"
	"encoding/json"
	"fmt"
	"os"
)

// readHistory reads the logs of all processes. They may be long: of ten minutes
// they have millions of lines.
func readHistory(paths []string) (*history, error) {
	h := newHistory()
	for _, path := range paths {
		if err := readJournal(path, h.take); err != nil {
			return nil, err
		}
	}
	h.settle()
	return h, nil
}

func readJournal(path string, take func(Event)) error {
	file, err := os.Open(path)
	if err != nil {
		return err
	}
	defer file.Close()
	lines := bufio.NewScanner(file)
	lines.Buffer(nil, 1<<20)
	for lines.Scan() {
		var e Event
		if err := json.Unmarshal(lines.Bytes(), &e); err != nil {
			return fmt.Errorf("%s: %w", path, err)
		}
		take(e)
	}
	return lines.Err()
}
