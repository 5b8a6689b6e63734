//go:build unix

package servers

import (
	"errors"
	"os"
	"slices"
	"testing"
)

// What is fatal ends what is done, and no more; Close undoes all, the last first.
func TestHost(t *testing.T) {
	t.Parallel()
	var h Host
	var order []int
	wanted := errors.New("wanted")
	err := h.Do(func() {
		h.Cleanup(func() { order = append(order, 1) })
		h.Cleanup(func() { order = append(order, 2); h.Fatal("the second") })
		h.Fatal(wanted)
	})
	if !errors.Is(err, wanted) || !h.Failed() {
		t.Errorf("Do gives %v, want what Fatal was called with", err)
	}
	dir := h.TempDir()
	if err := h.Close(); err == nil || err.Error() != "the second" {
		t.Errorf("Close gives %v, want what a clean-up failed with", err)
	}
	if !slices.Equal(order, []int{2, 1}) {
		t.Errorf("cleaned up in the order %v", order)
	}
	if _, err := os.Stat(dir); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("the folder is still there: %v", err)
	}
	defer func() {
		if recover() != "a panic" {
			t.Error("Do has swallowed a panic")
		}
	}()
	_ = h.Do(func() { panic("a panic") })
}
