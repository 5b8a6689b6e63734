//go:build unix

package redisstore

import (
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/holdfast-go/holdfast"
	"github.com/holdfast-go/holdfast/internal/servers"
)

// A server that cannot do it is never said to hold the lock: each has an error of
// its kind, within the bounds of a request, without the password.
func TestUnfitServersDoNotHold(t *testing.T) {
	t.Parallel()
	for what, c := range map[string]struct {
		args    []string // of the server
		prepare func(server *servers.Redis)
		query   string // of the URL
		want    error
	}{
		"that is gone":               {want: holdfast.ErrUnavailable, prepare: func(s *servers.Redis) { s.Kill() }},
		"that hangs":                 {want: holdfast.ErrUnavailable, prepare: func(s *servers.Redis) { s.Pause() }},
		"with another password":      {want: holdfast.ErrUnavailable, args: []string{"--requirepass", "another"}},
		"that is a replica":          {want: holdfast.ErrUnavailable, prepare: func(s *servers.Redis) { s.Do("REPLICAOF", "127.0.0.1", "1") }},
		"without memory":             {want: holdfast.ErrUnavailable, prepare: func(s *servers.Redis) { s.Do("CONFIG", "SET", "maxmemory", "1") }},
		"with a text for a counter":  {want: holdfast.ErrCorrupt, prepare: func(s *servers.Redis) { s.Do("SET", "lock:\x1fcounter", "x") }},
		"at the end of its counter":  {want: holdfast.ErrCorrupt, prepare: func(s *servers.Redis) { s.Do("SET", "lock:\x1fcounter", "9223372036854775807") }},
		"with a list for a guard":    {want: holdfast.ErrCorrupt, query: "?restart_guard=1m", prepare: func(s *servers.Redis) { s.Do("LPUSH", "lock:\x1fguard", "x") }},
		"without scripts":            {want: holdfast.ErrUnsupported, args: []string{"--rename-command", "EVALSHA", ""}},
		"that forbids scripts to us": {want: holdfast.ErrUnavailable, prepare: func(s *servers.Redis) { s.Do("ACL", "SETUSER", "default", "-evalsha") }},
	} {
		t.Run(what, func(t *testing.T) {
			t.Parallel()
			server := servers.StartRedis(t, c.args...)
			if c.prepare != nil {
				c.prepare(server)
			}
			user := ""
			if len(c.args) > 0 && c.args[0] == "--requirepass" {
				user = ":SecretWord@"
			}
			locks, err := holdfast.Open(t.Context(), "redis://"+user+server.Addr+c.query, &holdfast.Config{RequestTimeout: time.Second})
			if err != nil {
				t.Fatal(err)
			}
			began := time.Now()
			_, err = locks.TryAcquire(t.Context(), "name", nil)
			if !errors.Is(err, c.want) || errors.Is(err, holdfast.ErrHeld) || strings.Contains(err.Error(), "Secret") {
				t.Errorf("TryAcquire: %v, want %v", err, c.want)
			}
			if took := time.Since(began); took > bound/2 {
				t.Errorf("TryAcquire took %v", took)
			}
			if what == "that hangs" {
				server.Resume()
			}
			_ = locks.Close() // What it reports is the server's doing.
		})
	}
}
