//go:build unix

package redisstore

import (
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/holdfast-go/holdfast/driver"
	"github.com/holdfast-go/holdfast/internal/olddriver"
	"github.com/holdfast-go/holdfast/internal/servers"
)

// rights are the commands that the package comment asks for, without those of options
// and of the connection.
var rights = []string{
	"get", "set", "del", "pttl", "pexpire", "pexpiretime",
	"zadd", "zcard", "zscore", "zrange", "zremrangebyscore", "time",
}

// stateOf is what an error that says "nothing was changed" speaks of: the value of a
// lock, and whether it lasts for more than a minute.
func stateOf(server *servers.Redis, lock string) string {
	left, _ := strconv.Atoi(server.Do("PTTL", lock))
	return server.Do("GET", lock) + " " + strconv.FormatBool(left > 60_000)
}

// Whatever right a user lacks: an error that says that nothing was changed is true,
// also of each call of a batch, and says what the user lacks.
func TestMissingRights(t *testing.T) {
	t.Parallel()
	for replicas := range 2 {
		t.Run(strconv.Itoa(replicas), func(t *testing.T) {
			t.Parallel()
			server := servers.StartRedis(t)
			all := open(t, server.Addr, nil)
			for _, missing := range rights {
				server.Do("ACL", "SETUSER", missing, "on", ">SecretWord", "~lock:*", "-@all", "+eval", "+hello")
				server.Do(append([]string{"ACL", "SETUSER", missing}, plus(rights)...)...)
				server.Do("ACL", "SETUSER", missing, "-"+missing)
				s := openFromURL(t, "redis://"+missing+":SecretWord@"+server.Addr)
				s.options.MinReplicas = replicas // The scripts are those for WAIT.
				for _, order := range []string{"f", "F", "h", "m", "r", "R", "e", "k", "fh", "Ff", "fm", "FFh", "fF", "ek", "rR", "rrek", "S", "fS", "SF", "SmS"} {
					server.Do("FLUSHALL")
					above(t, all, "ahead", time.Now().Add(time.Hour).UnixMicro())
					var calls []*call
					for i, kind := range order {
						calls = append(calls, callOf(t, all, kind, "name/"+strconv.Itoa(i)))
					}
					var before []string
					for _, c := range calls {
						before = append(before, stateOf(server, c.lock))
					}
					s.exec(t, calls)
					for i, c := range calls {
						_, err := s.readReply(c)
						after := stateOf(server, c.lock)
						if err == nil {
							continue
						}
						what := "without " + missing + ", call " + strconv.Itoa(i) + " of " + order
						if driver.IsNotApplied(err) && after != before[i] {
							t.Errorf("%s: %v: it was %q, and is %q", what, err, before[i], after)
						}
						if !strings.Contains(err.Error(), "must be allowed") || strings.Contains(err.Error(), "Secret") {
							t.Errorf("%s: the error does not say that a right is missing, or says a secret: %v", what, err)
						}
						if !driver.IsNotApplied(err) && missing != "del" {
							t.Errorf("%s: the error leaves it open whether something was changed: %v", what, err)
						}
					}
				}
			}
		})
	}
}

// callOf makes a call of a kind that concerns a name of its own, which is left as the
// call needs it.
func callOf(t *testing.T, s *engine, kind rune, name string) *call {
	t.Helper()
	req := request(name, 50*time.Second)
	if kind == 'F' { // free, above a floor
		req.Floor = time.Now().Add(time.Hour).UnixMicro()
	}
	if kind == 'S' { // free, with several tokens
		req.Tokens = olddriver.MaxTokens
	}
	if kind == 'f' || kind == 'F' || kind == 'S' {
		return mustAcquireCall(t, s, req)
	}
	if res, err := s.Acquire(t.Context(), req); err != nil || !res.Granted {
		t.Fatalf("Acquire: %+v, %v", res, err)
	}
	switch kind {
	case 'h': // held by another owner
		return mustAcquireCall(t, s, request(name, 2*time.Minute))
	case 'm': // held by this owner
		req.TTL = 2 * time.Minute
		return mustAcquireCall(t, s, req)
	case 'r': // to be renewed
		return s.newOwnerCall(renewScript, name, req.Owner, 120_000)
	case 'R': // lasts long enough already
		return s.newOwnerCall(renewScript, name, req.Owner, 1)
	case 'e': // to be ended
		return s.newOwnerCall(releaseScript, name, req.Owner, 0)
	}
	return s.newOwnerCall(releaseScript, name, req.Owner, 120_000) // 'k', to be kept
}

// exec sends a batch as a lane does, but does not wait for replicas.
func (s *engine) exec(t *testing.T, calls []*call) {
	t.Helper()
	for _, r := range groupCalls(calls) {
		s.prepareCommand(r, true)
		r.err = s.client.Process(t.Context(), r.cmd)
		r.distribute()
	}
}

func plus(commands []string) (words []string) {
	for _, command := range commands {
		words = append(words, "+"+command)
	}
	return words
}
