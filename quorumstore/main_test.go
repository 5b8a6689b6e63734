package quorumstore

import (
	"flag"
	"os"
	"strconv"
	"testing"

	"github.com/redis/go-redis/v9/logging"
)

// The tests with real servers mostly wait, so that more of them can run at a
// time than there are cores.
const parallel = 12

func TestMain(m *testing.M) {
	logging.Disable() // The client library logs what the tests do to it.
	flag.Parse()
	if f := flag.Lookup("test.parallel"); f.Value.String() == f.DefValue {
		_ = f.Value.Set(strconv.Itoa(parallel)) // A number is valid.
	}
	os.Exit(m.Run())
}
