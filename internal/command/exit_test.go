package command

import (
	"errors"
	"fmt"
	"io/fs"
	"testing"

	"github.com/holdfast-go/holdfast"
)

// An error is printed on one line, with the prefix once and with nothing else left out.
func TestErrorText(t *testing.T) {
	path := &fs.PathError{Op: "open", Path: "/home/u/holdfast: x/.local/state/holdfast", Err: fs.ErrNotExist}
	lost := &holdfast.LostError{Name: "x", Token: 7, Reason: holdfast.ErrTaken}
	for _, c := range []struct {
		err  error
		want string
	}{
		{fmt.Errorf("holdfast: acquire %q: %w: %w", "x", holdfast.ErrUnavailable, path),
			`acquire "x": store unavailable: open /home/u/holdfast: x/.local/state/holdfast: file does not exist`},
		{fmt.Errorf("the command was stopped: %w", fmt.Errorf("holdfast: release: %w", lost)),
			`the command was stopped: release: lock "x" (token 7) lost: the store no longer has it for this holder`},
		{errors.Join(lost, errors.New("and\nmore")),
			`lock "x" (token 7) lost: the store no longer has it for this holder; and; more`},
		{errors.New("failed to connect to `user=u`:\n\t[::1]:5 (localhost): dial error: dial tcp [::1]:5: refused\n\t[::1]:5 (localhost): dial error: dial tcp [::1]:5: refused"),
			"failed to connect to `user=u`: dial tcp [::1]:5: refused"},
		{errors.New("ends with a break\n"), "ends with a break"},
	} {
		if got := (&exitError{err: c.err}).Error(); got != c.want {
			t.Errorf("%q\nis %q\nwant %q", c.err, got, c.want)
		}
	}
}
