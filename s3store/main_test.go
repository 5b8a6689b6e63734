package s3store

import (
	"flag"
	"os"
	"strconv"
	"testing"
)

// TestMain has twice as many tests at a time as others have: most of them wait.
func TestMain(m *testing.M) {
	flag.Parse()
	if n, err := strconv.Atoi(flag.Lookup("test.parallel").Value.String()); err == nil {
		_ = flag.Set("test.parallel", strconv.Itoa(max(n, 8)))
	}
	os.Exit(m.Run())
}
