package redisstore

import (
	"crypto/tls"
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

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

// Statistics with which the setting may be one of CONFIG SET alone are never well.
func TestExamineLasting(t *testing.T) {
	const file = "/etc/redis.conf"
	for _, c := range []struct {
		file, rewrites, calls string
		want                  driver.Severity
	}{
		{"", "1", "", driver.SeverityOK}, {"", "1", "config|get", driver.SeverityOK}, {"", "1", "config|set", driver.SeverityWarning},
		{"", "0", "", driver.SeverityOK}, {file, "0", "config|set", driver.SeverityUnknown}, {"", "0", "config|set", driver.SeverityUnknown},
		{file, "0", "config|set config|rewrite", driver.SeverityNote}, {"", "0", "config|resetstat", driver.SeverityNote}, {file, "0", "config|resetstat", driver.SeverityNote},
		{"", "1", "config", driver.SeverityNote}, {file, "1", "config", driver.SeverityNote},
		{file, "1", "config|set", driver.SeverityWarning}, {file, "1", "config|set config|rewrite", driver.SeverityNote},
	} {
		calls := map[string]string{}
		for call := range strings.FieldsSeq(c.calls) {
			calls["cmdstat_"+call] = "calls=1"
		}
		info := map[string]string{"config_file": c.file, "aof_rewrites": c.rewrites}
		if f := judgeLasting(info, calls, driver.Finding{Severity: driver.SeverityOK}, "this; or restart_guard=30s"); f.Severity != c.want ||
			f.Severity != driver.SeverityOK && !strings.HasSuffix(f.Remedy, "; or restart_guard=30s") {
			t.Errorf("%+v: %v", c, f)
		}
	}
	note := driver.Finding{Severity: driver.SeverityNote, Found: "everysec"} // which is the default, too
	if f := judgeLasting(map[string]string{"aof_rewrites": "0"}, map[string]string{"cmdstat_config|set": "calls=1"}, note, ""); f != note {
		t.Errorf("everysec: %v", f)
	}
}

// Remedies go to the server that was examined.
func TestExamineAddress(t *testing.T) {
	for want, o := range map[string]*redis.Options{
		"redis-cli -h cache -p 6380":     {Addr: "cache:6380"},
		"redis-cli -h ::1 -p 6380 --tls": {Addr: "[::1]:6380", TLSConfig: &tls.Config{}},
		"redis-cli -s /run/redis.sock":   {Network: "unix", Addr: "/run/redis.sock"},
		"redis-cli -h HOST -p 6379":      {Addr: sentinelAddr},
	} {
		client := redis.NewClient(o)
		if got := cliOf(client, map[string]string{"tcp_port": "6379"}); got != want {
			t.Errorf("%s, want %s", got, want)
		}
		_ = client.Close()
	}
}
