package redisstore

import (
	"errors"
	"testing"
	"time"

	"github.com/holdfast-go/holdfast/driver"
)

// A check says that it cannot tell if the server does not report what it needs, as those of some
// providers and proxies do.
func TestExamineWithoutFacts(t *testing.T) {
	s := &Store{}
	for _, f := range s.examineServer(t.Context(), nil, map[string]string{}, time.Second) {
		if f.Severity != driver.SeverityUnknown {
			t.Errorf("INFO says nothing: %v", f)
		}
	}
	for what, c := range map[string]struct {
		values map[string]string
		err    error
	}{"nothing": {}, "an error": {nil, errors.New("no")}} {
		if f := judgeSync(c.values, c.err, driver.Finding{}, ""); f.Severity != driver.SeverityUnknown {
			t.Errorf("CONFIG GET answers %s: %v", what, f)
		}
	}
}
