package filestore

import (
	"context"
	"net/url"
	"os"
	"path/filepath"
	"runtime"
	"testing"

	"github.com/holdfast-go/holdfast/driver"
)

// openAt opens a URL as package holdfast does.
func openAt(tb testing.TB, text string) (*Store, error) {
	tb.Helper()
	u, err := url.Parse(text)
	if err != nil {
		tb.Fatal(err)
	}
	open, err := driver.Lookup("file")
	if err != nil {
		tb.Fatal(err)
	}
	s, err := open(context.Background(), u)
	if err != nil {
		return nil, err
	}
	tb.Cleanup(func() { s.Close() })
	return s.(*Store), nil
}

func TestURL(t *testing.T) {
	home, work := t.TempDir(), t.TempDir()
	t.Setenv("HOME", home)
	t.Setenv("USERPROFILE", home)
	t.Setenv("XDG_RUNTIME_DIR", filepath.Join(home, "run"))
	t.Setenv("XDG_STATE_HOME", filepath.Join(home, "other"))
	t.Chdir(work)
	byDefault, err := DefaultDir()
	if err != nil {
		t.Fatal(err)
	}
	if runtime.GOOS == "linux" && byDefault != filepath.Join(home, ".local/state/holdfast") {
		t.Errorf("the default folder is %s", byDefault)
	}
	slashed := filepath.ToSlash(work)
	for text, want := range map[string]string{
		"file:":                              byDefault,
		"file://":                            byDefault,
		"file:?allow_network=false":          byDefault,
		"file://" + slashed:                  work,
		"file:" + slashed:                    work,
		"file://localhost" + slashed:         work,
		"file:some/locks":                    filepath.Join(work, "some", "locks"),
		"file:a%20b%23c":                     filepath.Join(work, "a b#c"),
		"file:./x?allow_network=true":        filepath.Join(work, "x"),
		"file://" + slashed + "/a%20b%3fc":   filepath.Join(work, "a b?c"),
		"file://" + slashed + "/none/../not": filepath.Join(work, "not"),
	} {
		s, err := openAt(t, text)
		if err != nil {
			t.Errorf("%s: %v", text, err)
		} else if s.Dir() != want {
			t.Errorf("%s opens %s, want %s", text, s.Dir(), want)
		}
	}
	if left := files(t, work); len(left) > 0 {
		t.Errorf("opening alone has made %q", left)
	}
}

func TestURLRefused(t *testing.T) {
	for text, mention := range map[string]string{
		"file:///tmp/x?ttl=3":              "ttl",
		"file:///tmp/x?allow_network=oui":  "allow_network",
		"file:///tmp/x?%zz":                "parameters",
		"file://elsewhere/tmp/x":           "this host",
		"file://user:geheim@localhost/tmp": "this host",
		"file:///tmp/x#y":                  "%23",
		"file:~/locks":                     "write it out",
		"file:$HOME/locks":                 "write it out",
		"file:%7Eroot":                     "write it out",
		"file:///~/locks":                  "write it out",
		"file:///$HOME/locks":              "write it out",
	} {
		_, err := openAt(t, text)
		wantError(t, err, driver.ErrInvalid, mention)
	}
}

func TestNoHome(t *testing.T) {
	for _, name := range []string{"HOME", "USERPROFILE"} {
		t.Setenv(name, "relative")
	}
	if dir, err := DefaultDir(); err == nil {
		t.Errorf("the default folder is %s", dir)
	}
	for _, name := range []string{"HOME", "USERPROFILE"} {
		os.Unsetenv(name)
	}
	if dir, err := DefaultDir(); err == nil {
		t.Errorf("the default folder is %s", dir)
	}
	_, err := New("", nil)
	wantError(t, err, driver.ErrInvalid)
}
