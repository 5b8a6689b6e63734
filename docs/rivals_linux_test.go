package docs

import (
	"encoding/json"
	"net"
	"os/exec"
	"reflect"
	"testing"

	"github.com/holdfast-go/holdfast/internal/servers"
)

// TestRivalRedisSemaphore tests the row of redis-semaphore in rivals-shared.md.
func TestRivalRedisSemaphore(t *testing.T) {
	host, port, err := net.SplitHostPort(servers.StartRedis(t).Addr)
	if err != nil {
		t.Fatal(err)
	}
	out, err := exec.Command("node", "../redisstore/testdata/interop/semaphorecases.js", host, port).CombinedOutput()
	if err != nil {
		t.Fatalf("run \"scripts/needs all\" if packages of npm are missing: %v\n%s", err, out)
	}
	var found map[string]any
	if err := json.Unmarshal(out, &found); err != nil {
		t.Fatalf("%v in %s", err, out)
	}
	want := map[string]any{
		"raisedAdmits": true, "formerAdmits": false,
		"deadIsReplaced": true, "aliveKeepsIt": true,
		"shorterTimeoutAdmitsASecond": true, "firstIsTold": false,
		"served": []any{"second", "first"},
	}
	if !reflect.DeepEqual(found, want) {
		t.Errorf("redis-semaphore: %v, and the page says %v", found, want)
	}
}
