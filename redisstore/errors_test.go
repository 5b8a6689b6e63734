//go:build unix

package redisstore

import (
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/holdfast-go/holdfast/driver"
	"github.com/holdfast-go/holdfast/internal/servers"
)

// An error is known by its code. The rest of it may have the name of a user, which
// looks like the code of another error here.
func TestUserNamesAreNoErrorCodes(t *testing.T) {
	t.Parallel()
	server := servers.StartRedis(t)
	for _, user := range []string{"HOLDFAST", "PARTIAL", "WRONGTYPE", "READONLY", "CROSSSLOT", "unauthenticated", "plain"} {
		for _, missing := range []string{"set", "evalsha"} {
			server.Do("ACL", "SETUSER", user, "reset", "on", ">SecretWord", "~*", "&*", "+@all", "-"+missing)
			s := openFromURL(t, "redis://"+user+":SecretWord@"+server.Addr)
			_, err := s.Acquire(t.Context(), request("name", time.Minute))
			if err == nil || !errors.Is(err, driver.ErrNotApplied) || errors.Is(err, driver.ErrCorrupt) || !strings.Contains(err.Error(), "must be allowed") {
				t.Errorf("user %s without %s: %v, want the missing right named", user, missing, err)
			}
		}
	}
	s := open(t, server.Addr, nil)
	for _, text := range []string{
		"NOPERM User %s has no permissions to run the 'evalsha' command",
		"ERR ACL failure in script: User %s has no permissions to run the 'set' command script: 6b1bf486c81ceb7edf3c093f4c48582e38c0e791, on @user_script:12.",
	} {
		for _, user := range []string{"HOLDFAST", "PARTIAL", "WRONGTYPE", "OOM", "unauthenticated"} {
			err := s.explainReply(errors.New(strings.ReplaceAll(text, "%s", user)))
			if !errors.Is(err, driver.ErrNotApplied) || errors.Is(err, driver.ErrCorrupt) || !strings.Contains(err.Error(), "must be allowed") ||
				!strings.Contains(err.Error(), "command") || strings.Contains(err.Error(), "6b1bf") {
				t.Errorf("%s of user %s: %v", text, user, err)
			}
		}
	}
	for _, text := range []string{ // of Redis 6.2
		"ERR Error running script (call to f_6b1bf486c81ceb7edf3c093f4c48582e38c0e791): @user_script:12: READONLY You can't write",
		"ERR Error running script (call to f_6b1bf486c81ceb7edf3c093f4c48582e38c0e791): @user_script:12: @user_script: 12: -READONLY You can't write",
		"@user_script: 12: -READONLY You can't write",
		"user_script:12: READONLY You can't write",
		"READONLY You can't write script: 6b1bf486c81ceb7edf3c093f4c48582e38c0e791, on @user_script:12.",
	} {
		if err := s.explainReply(errors.New(text)); !strings.Contains(err.Error(), "is a replica") {
			t.Errorf("%s: %v", text, err)
		}
	}
}
