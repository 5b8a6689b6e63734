//go:build unix

package result

import (
	"encoding/json"
	"errors"
	"io/fs"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
)

// A Set contains the results of several scenarios, by name. It is kept in a file, so that a
// page can be written from scenarios that were measured one at a time.
type Set map[string]*Scenario

// Load reads a file that Save wrote. A file that does not exist is empty.
func Load(path string) (Set, error) {
	text, err := os.ReadFile(path)
	if errors.Is(err, fs.ErrNotExist) {
		return Set{}, nil
	}
	if err != nil {
		return nil, err
	}
	set := Set{}
	return set, json.Unmarshal(text, &set)
}

// Save writes a file that Load reads, a line for each scenario.
func (s Set) Save(path string) error {
	var lines []string
	for _, name := range slices.Sorted(maps.Keys(s)) {
		line, err := json.Marshal(s[name])
		if err != nil {
			return err
		}
		lines = append(lines, strconv.Quote(name)+": "+string(line))
	}
	if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
		return err
	}
	return os.WriteFile(path, []byte("{\n"+strings.Join(lines, ",\n")+"\n}\n"), 0o644)
}
