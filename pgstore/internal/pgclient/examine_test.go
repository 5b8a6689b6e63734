package pgclient

import (
	"testing"

	"github.com/holdfast-go/holdfast/driver"
)

func TestExamineVersion(t *testing.T) {
	for version, want := range map[string]driver.Severity{
		"9.6.24": driver.SeverityFailure, "12.22": driver.SeverityFailure, "12devel": driver.SeverityFailure, "": driver.SeverityUnknown, "YB": driver.SeverityUnknown,
		"13.0": driver.SeverityOK, "15.18 (Debian 15.18-1)": driver.SeverityOK, "18beta1": driver.SeverityOK,
	} {
		if f := ExamineVersion("postgres.version", version); f.Severity != want || (f.Want == "") != (want == driver.SeverityOK) {
			t.Errorf("%s: %v", version, f)
		}
	}
}
