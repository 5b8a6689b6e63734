package redisstore

import (
	"cmp"
	"context"
	"crypto/sha1"
	_ "embed" // for the scripts
	"encoding/hex"
	"fmt"
	"slices"
	"strings"
	"sync"

	"github.com/redis/go-redis/v9"
)

//go:embed lua/unread.lua
var unreadLua string

//go:embed lua/attempt.lua
var attemptLua string

//go:embed lua/describe.lua
var describeLua string

//go:embed lua/guard.lua
var guardLua string

//go:embed lua/replicas.lua
var replicasLua string

//go:embed lua/before.lua
var beforeLua string

//go:embed lua/conditions.lua
var conditionsLua string

//go:embed lua/holders.lua
var holdersLua string

//go:embed lua/queue.lua
var queueLua string

//go:embed lua/claim.lua
var claimLua string

//go:embed lua/acquire.lua
var acquireLua string

//go:embed lua/prolong.lua
var prolongLua string

//go:embed lua/reacquire.lua
var reacquireLua string

//go:embed lua/contended.lua
var contendedLua string

//go:embed lua/renew.lua
var renewLua string

//go:embed lua/release.lua
var releaseLua string

//go:embed lua/lookup.lua
var lookupLua string

//go:embed lua/break.lua
var breakLua string

// The scripts. Each handles any number of locks, so that many calls share the cost of one script.
var (
	acquireScript = newScript(2, 3, guardLua, replicasLua, acquireLua, slowLua, prolongLua, reacquireLua, contendedLua)
	claimScript   = newScript(1, 2, beforeLua, guardLua, replicasLua, conditionsLua, slowLua, prolongLua, reacquireLua, claimLua)
	renewScript   = newScript(1, 1, beforeLua, guardLua, replicasLua, conditionsLua, slowLua, prolongLua, reacquireLua, renewLua)
	releaseScript = newScript(1, 1, beforeLua, guardLua, replicasLua, conditionsLua, slowLua, prolongLua, reacquireLua, releaseLua)
	lookupScript  = newScript(0, 0, beforeLua, conditionsLua, slowLua, lookupLua)
	breakScript   = newScript(1, 0, beforeLua, guardLua, replicasLua, conditionsLua, slowLua, breakLua)
)

// slowLua is what the scripts have in common behind their usual cases.
var slowLua = unreadLua + attemptLua + describeLua + holdersLua + queueLua

// A script is a Lua script that the server runs in one step.
type script struct {
	source     func() (text string, sha any) // sha is the server's name for the text: a string
	perKeyArgs int                           // how many arguments each key has
	sharedArgs int                           // how many arguments the calls of a batch may share
}

// newScript joins parts when the script is first used, since most programs that link this package
// start without a need for any script.
func newScript(perKeyArgs, sharedArgs int, parts ...string) *script {
	source := sync.OnceValues(func() (string, any) { return joinParts(parts) })
	return &script{source: source, perKeyArgs: perKeyArgs, sharedArgs: sharedArgs}
}

// joinParts joins and hashes the parts of a script. It drops the comments: the text is sent
// whenever a server does not know it.
func joinParts(parts []string) (text string, sha any) {
	var b strings.Builder
	for _, part := range parts {
		for line := range strings.Lines(part) {
			if !strings.HasPrefix(strings.TrimLeft(line, " \t"), "--") {
				b.WriteString(line)
			}
		}
	}
	sum := sha1.Sum([]byte(b.String()))
	return b.String(), hex.EncodeToString(sum[:])
}

// A noRetry is a command that the client library never sends a second time. A second release of the
// same lock has another reply, and the repetitions of a refused SCAN take longer than a request may.
type noRetry struct{ redis.Cmder }

// NoRetry implements [redis.Cmder].
func (noRetry) NoRetry() bool { return true }

// scriptMax is how many locks one run of a script handles: many enough to share its cost, and few
// enough not to hold up the server's other clients.
const scriptMax = 64

// A scriptRun is one run of a script for the calls of a batch that can share it: in a cluster,
// those on one hash slot.
type scriptRun struct {
	script *script
	tag    string
	calls  []*call
	cmd    *redis.Cmd
	err    error // of the round trip

	// unconfirmed is why the changes of the run do not count: too few replicas have them.
	unconfirmed error

	// backlogKept is the argument for lua/guard.lua: whether the backlog is kept; ""
	// stands for "?".
	backlogKept string
}

// groupCalls divides a batch into runs of scripts. Calls on one lock are in different runs, in the
// order of the batch: an acquisition may be sent together with the release that undoes it.
func groupCalls(batch []*call) []*scriptRun {
	if len(batch) == 1 {
		return []*scriptRun{{script: batch[0].script, tag: batch[0].tag, calls: batch}}
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
			r = &scriptRun{script: c.script, tag: c.tag}
			open[k] = r
			all = append(all, r)
		}
		r.calls = append(r.calls, c)
	}
	return all
}

// prepareCommand makes the command of the run: by the hash of the script, or in full for a server
// that does not know it.
func (s *engine) prepareCommand(r *scriptRun, inFull bool) {
	text, sha := r.script.source()
	var verb, script any = "evalsha", sha
	if inFull {
		verb, script = "eval", text
	}
	keys := s.sharedKeys // that all locks share
	if r.tag != "" {
		keys = s.sharedKeysOf(r.tag)
	}
	guard := int64(0)
	if s.options.RestartGuard > 0 {
		guard = ceilMillis(s.options.RestartGuard)
	}
	var conditions any = len(keys)
	if replicas := s.options.MinReplicas; r.script != lookupScript && (guard > 0 || replicas > 0) {
		conditions = fmt.Sprintf("%d %d %s %d", len(keys), guard, cmp.Or(r.backlogKept, "?"), replicas)
	}
	first, distinct := r.calls[0], r.calls
	if !slices.ContainsFunc(r.calls, func(c *call) bool { return c.ms != first.ms || c.wait != first.wait || c.public != first.public }) {
		distinct = r.calls[:1] // Arguments that are equal for all calls are sent once.
	}
	words := make([]any, 0, 4+len(keys)+len(r.calls)*(1+r.script.perKeyArgs)+len(distinct)*r.script.sharedArgs)
	words = append(words, verb, script, len(keys)+len(r.calls))
	words = append(words, keys...)
	for _, c := range r.calls {
		words = append(words, &c.lock)
	}
	words = append(words, conditions)
	for _, c := range r.calls {
		own := [...]any{&c.owner, &c.floor}
		switch {
		case c.limit != 0:
			own[1] = fmt.Sprintf("%d %d %d", c.floor, max(c.tokens, 1), c.limit)
		case c.tokens > 1:
			own[1] = fmt.Sprintf("%d %d", c.floor, c.tokens)
		}
		words = append(words, own[:r.script.perKeyArgs]...)
	}
	for _, c := range distinct {
		rest := [...]any{&c.ms, &c.wait, &c.public}
		words = append(words, rest[:r.script.sharedArgs]...)
	}
	r.cmd = redis.NewCmd(context.Background(), words...)
}

func (s *engine) sharedKeysOf(tag string) []any {
	keys := []any{s.counterKey(tag), s.aheadKey(tag), s.queuesKey(tag)}
	if s.options.RestartGuard > 0 {
		keys = append(keys, s.guardKey())
	}
	if s.cluster {
		keys = append(keys, s.absentKey(tag))
	}
	return keys
}

// replyTo returns the script's reply to call i, and false unless there is a reply to each call.
func (r *scriptRun) replyTo(i int) (any, bool) {
	if reply, _ := r.cmd.Val().([]any); len(reply) == len(r.calls) {
		return reply[i], true
	}
	return nil, false
}

// distribute gives every call of the run its reply.
func (r *scriptRun) distribute() {
	reply, err := r.cmd.Result()
	if err == nil && reply == nil {
		// The connection could not be set up, with a wrong password for instance: the client
		// library reports that for the round trip only.
		err = r.err
	}
	if _, ok := r.replyTo(0); err == nil && !ok {
		err = errReply("another number of answers than questions")
	}
	for i, c := range r.calls {
		c.err = err
		if err == nil {
			c.reply, _ = r.replyTo(i)
		}
		if r.unconfirmed != nil && mustSurviveFailover(c) {
			c.err = r.unconfirmed
		}
	}
}
