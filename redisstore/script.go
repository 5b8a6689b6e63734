package redisstore

import (
	"context"
	"crypto/sha1"
	_ "embed" // for the scripts
	"encoding/hex"
	"fmt"
	"strings"
	"sync"

	"github.com/redis/go-redis/v9"
)

var (
	//go:embed lua/guard.lua
	guardLua string
	//go:embed lua/replicas.lua
	replicasLua string
	//go:embed lua/queue.lua
	queueLua string
	//go:embed lua/acquire.lua
	acquireLua string
	//go:embed lua/renew.lua
	renewLua string
	//go:embed lua/release.lua
	releaseLua string
	//go:embed lua/lookup.lua
	lookupLua string
	//go:embed lua/break.lua
	breakLua string
)

// The scripts. Each handles any number of locks, so that many calls share the cost of one.
var (
	acquireScript = newScript(acquireLua)
	renewScript   = newScript(renewLua)
	releaseScript = newScript(releaseLua)
	lookupScript  = newScript(lookupLua)
	breakScript   = newScript(breakLua)
)

// A script is a Lua script that the server runs in one step. Its source has the text and the
// server's name for it.
type script struct{ source func() (text, sha string) }

// newScript puts the rule of the queue in front of a verb when the script is first used, since most
// programs that link this package start without a need for it. It drops the comments: the text is
// sent whenever a server does not know it.
func newScript(verb string) *script {
	return &script{sync.OnceValues(func() (string, string) {
		var b strings.Builder
		for line := range strings.Lines(guardLua + replicasLua + queueLua + verb) {
			if !strings.HasPrefix(strings.TrimLeft(line, " \t"), "--") {
				b.WriteString(line)
			}
		}
		sum := sha1.Sum([]byte(b.String()))
		return b.String(), hex.EncodeToString(sum[:])
	})}
}

// A noRetry is a command that the client library never sends a second time. A second release of the
// same lock has another reply, and the repetitions of a refused SCAN take longer than a request may.
type noRetry struct{ redis.Cmder }

// NoRetry implements [redis.Cmder].
func (noRetry) NoRetry() bool { return true }

// A call is what a script is to do with one lock.
type call struct {
	script *script
	tag    string // of the keys' hash slot, in a cluster
	lock   string
	owner  string // of whose calls none overtakes another; "" if that may be
	args   []any
	keep   bool // of a release
	reply  any
	err    error
}

// scriptMax is how many locks one run of a script handles: many enough to share its cost, and few
// enough not to hold up the server's other clients.
const scriptMax = 64

// A scriptRun is one run of a script for the calls of a batch that can share it: in a cluster,
// those on one hash slot.
type scriptRun struct {
	script      *script
	calls       []*call
	cmd         *redis.Cmd
	err         error  // of the round trip
	unconfirmed error  // why the changes of the run do not count: too few replicas have them
	backlogKept string // the argument for lua/guard.lua; "" stands for "?"
}

// groupCalls divides a batch into runs of scripts. Calls on one lock are in different runs, in the
// order of the batch.
func groupCalls(batch []*call) []*scriptRun {
	if len(batch) == 1 {
		return []*scriptRun{{script: batch[0].script, calls: batch}}
	}
	type kind struct {
		script *script
		tag    string
	}
	var all []*scriptRun
	open := make(map[kind]*scriptRun, 2)
	locks := make(map[string]bool, len(batch)) // those in open
	for _, c := range batch {
		if locks[c.lock] {
			clear(open)
			clear(locks)
		}
		locks[c.lock] = true
		k := kind{c.script, c.tag}
		r := open[k]
		if r == nil || len(r.calls) == scriptMax {
			r = &scriptRun{script: c.script}
			open[k] = r
			all = append(all, r)
		}
		r.calls = append(r.calls, c)
	}
	return all
}

// prepareCommand makes the command of the run: by the hash of the script, or in full for a server
// that does not know it.
func (s *Store) prepareCommand(r *scriptRun, inFull bool) {
	text, sha := r.script.source()
	words := make([]any, 0, 8+9*len(r.calls))
	if words = append(words, "evalsha", sha); inFull {
		words[0], words[1] = "eval", text
	}
	base := r.calls[0].tag + s.prefix
	words = append(words, 0, base+counterSuffix, base+aheadSuffix)
	conditions, guard := "0", s.options.RestartGuard
	if guard > 0 || s.options.MinReplicas > 0 {
		kept := r.backlogKept
		if kept == "" {
			kept = "?"
		}
		conditions = fmt.Sprintf("%d %s %d", ceilMillis(guard), kept, s.options.MinReplicas)
	}
	if guard > 0 {
		words = append(words, s.guardKey())
	}
	for _, c := range r.calls {
		words = append(words, c.lock, base+holdersInfix+c.lock, base+queueInfix+c.lock, base+entriesInfix+c.lock)
	}
	words[2] = len(words) - 3
	words = append(words, conditions)
	if r.script == acquireScript || r.script == renewScript {
		words = append(words, s.listener.channel)
	}
	for _, c := range r.calls {
		words = append(words, c.args...)
	}
	r.cmd = redis.NewCmd(context.Background(), words...)
}

// replyTo returns the script's reply to call i, nil unless there is a reply to each call.
func (r *scriptRun) replyTo(i int) any {
	if reply, _ := r.cmd.Val().([]any); len(reply) == len(r.calls) {
		return reply[i]
	}
	return nil
}

// distribute gives every call of the run its reply.
func (r *scriptRun) distribute() {
	reply, err := r.cmd.Result()
	if err == nil && reply == nil {
		// The connection could not be set up, with a wrong password for instance: the client
		// library reports that for the round trip only.
		err = r.err
	}
	if err == nil && r.replyTo(0) == nil {
		err = errReply("another number of answers than questions")
	}
	for i, c := range r.calls {
		c.reply, c.err = r.replyTo(i), err
		if r.unconfirmed != nil && err == nil && c.mustSurviveFailover() {
			c.err = r.unconfirmed
		}
	}
}

// mustSurviveFailover reports whether a call has made a change that must survive a failover.
func (c *call) mustSurviveFailover() bool {
	_, granted := c.reply.(int64)
	words, _ := c.reply.([]any)
	switch c.script {
	case acquireScript:
		return granted
	case releaseScript:
		return c.keep && c.reply == int64(1)
	}
	return c.script == renewScript && len(words) == 2 && words[0] == "held"
}
