//go:build unix

package redisstore

import (
	"testing"

	"github.com/holdfast-go/holdfast/internal/servers"
)

// A server that does not let the user run INFO has no identity, which is no error.
func TestIdentityRefused(t *testing.T) {
	t.Parallel()
	server := servers.StartRedis(t)
	server.Do("ACL", "SETUSER", "limited", "on", ">SecretWord", "~*", "+@all", "-info")
	s := openFromURL(t, "redis://limited:SecretWord@"+server.Addr)
	if id, err := s.Identity(t.Context()); id != "" || err != nil {
		t.Errorf("%q, %v, want no identity", id, err)
	}
}
