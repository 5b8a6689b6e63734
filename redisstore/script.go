package redisstore

import (
	"context"
	"crypto/sha1"
	_ "embed" // for the scripts
	"encoding/hex"
	"slices"
	"strings"

	"github.com/redis/go-redis/v9"
)

//go:embed lua/corrupt.lua
var corruptLua string

//go:embed lua/describe.lua
var describeLua string

//go:embed lua/owner.lua
var ownerLua string

//go:embed lua/guard.lua
var guardLua string

//go:embed lua/acquire.lua
var acquireLua string

//go:embed lua/refused.lua
var refusedLua string

//go:embed lua/renew.lua
var renewLua string

//go:embed lua/usual_release.lua
var usualReleaseLua string

//go:embed lua/release.lua
var releaseLua string

//go:embed lua/lookup.lua
var lookupLua string

//go:embed lua/break.lua
var breakLua string

// The scripts. Each does its work on any number of locks, so that many calls
// share the cost of one script.
var (
	acquireScript = newScript(2, 2, guardLua, acquireLua, corruptLua, describeLua, refusedLua)
	renewScript   = newScript(1, 1, corruptLua, ownerLua, renewLua)
	releaseScript = newScript(1, 1, ownerLua, usualReleaseLua, corruptLua, releaseLua)
	lookupScript  = newScript(0, 0, corruptLua, describeLua, lookupLua)
	breakScript   = newScript(0, 0, corruptLua, describeLua, breakLua)
)

// A script is a Lua script that the server runs in one step.
type script struct {
	text string
	sha  any // under which the server knows the text: a string
	own  int // how many of a call's arguments of its own it has
	rest int // and how many of those that the calls of a batch may share
}

// newScript puts parts together. The comments stay here: the text is sent
// whenever a server does not know it.
func newScript(own, rest int, parts ...string) *script {
	var b strings.Builder
	for _, part := range parts {
		for line := range strings.Lines(part) {
			if !strings.HasPrefix(strings.TrimLeft(line, " \t"), "--") {
				b.WriteString(line)
			}
		}
	}
	text := b.String()
	sum := sha1.Sum([]byte(text))
	return &script{text: text, sha: hex.EncodeToString(sum[:]), own: own, rest: rest}
}

// A command is a script on its way. The client library never sends one a second
// time, since a second release of the same lock has another answer.
type command struct {
	*redis.Cmd
}

// NoRetry implements [redis.Cmder].
func (command) NoRetry() bool { return true }

// scriptMax is how many locks one run of a script handles: many enough to share
// its cost, and few enough not to hold up the server's other clients.
const scriptMax = 64

// A run is one run of a script for the calls of a batch that can share it: in a
// cluster, those on one hash slot.
type run struct {
	script *script
	tag    string
	calls  []*call
	cmd    command
	err    error // of the round trip

	// unconfirmed is why what the run has changed does not count: too few
	// replicas have it.
	unconfirmed error
}

// group divides a batch. The calls of a batch are not in any order: each was put
// into its lane before another was answered.
func group(batch []*call) []*run {
	if len(batch) == 1 {
		return []*run{{script: batch[0].script, tag: batch[0].tag, calls: batch}}
	}
	type kind struct {
		script *script
		tag    string
	}
	var all []*run
	open := make(map[kind]*run, 2)
	for _, c := range batch {
		k := kind{c.script, c.tag}
		r := open[k]
		if r == nil || len(r.calls) == scriptMax {
			r = &run{script: c.script, tag: c.tag}
			open[k] = r
			all = append(all, r)
		}
		r.calls = append(r.calls, c)
	}
	return all
}

// prepare makes the command of the run: by the hash of the script, or in full
// for a server that does not know it.
func (s *Store) prepare(ctx context.Context, r *run, inFull bool) {
	var verb, script any = "evalsha", r.script.sha
	if inFull {
		verb, script = "eval", r.script.text
	}
	var keys, args []any
	if r.script == acquireScript {
		keys, args = s.common(r)
	}
	alike := r.calls
	if r.uniform() {
		alike = r.calls[:1]
	}
	words := make([]any, 0, 3+len(keys)+len(args)+len(r.calls)*(1+r.script.own)+len(alike)*r.script.rest)
	words = append(words, verb, script, len(keys)+len(r.calls))
	words = append(words, keys...)
	for _, c := range r.calls {
		words = append(words, &c.lock)
	}
	words = append(words, args...)
	for _, c := range r.calls {
		own := [...]any{&c.owner, &c.floor}
		words = append(words, own[:r.script.own]...)
	}
	for _, c := range alike {
		rest := [...]any{&c.ms, &c.public}
		words = append(words, rest[:r.script.rest]...)
	}
	r.cmd = command{redis.NewCmd(ctx, words...)}
}

// uniform reports whether what the calls of the run may share is the same in all:
// then it is said once.
func (r *run) uniform() bool {
	first := r.calls[0]
	return !slices.ContainsFunc(r.calls, func(c *call) bool { return c.ms != first.ms || c.public != first.public })
}

// common returns the keys and arguments that all locks of an acquire share.
func (s *Store) common(r *run) (keys, args []any) {
	keys = s.shared
	if s.cluster {
		keys = s.sharedKeys(r.tag)
	}
	return keys, s.guard
}

func (s *Store) sharedKeys(tag string) []any {
	keys := []any{s.counterKey(tag), s.aheadKey(tag)}
	if s.options.RestartGuard > 0 {
		keys = append(keys, s.guardKey())
	}
	return keys
}

// answer returns what the script has answered to a call, by its number. Where
// nothing special has happened it says so for all in one number.
func (r *run) answer(i int) any {
	switch reply := r.cmd.Val().(type) {
	case []any:
		return reply[i]
	case int64:
		if i > 0 && r.script == acquireScript {
			return reply + int64(i) // The tokens follow each other.
		}
	}
	return r.cmd.Val()
}

// answered reports whether there is an answer to each call.
func (r *run) answered() bool {
	switch reply := r.cmd.Val().(type) {
	case []any:
		return len(reply) == len(r.calls)
	case int64:
		return true
	}
	return false
}

// deliver hands every call of the run its answer.
func (r *run) deliver() {
	reply, err := r.cmd.Result()
	if err == nil && reply == nil {
		// The connection could not be set up, with a wrong password for
		// instance: the client library tells that of the round trip only.
		err = r.err
	}
	if err == nil && !r.answered() {
		err = errReply("another number of answers than questions")
	}
	for i, c := range r.calls {
		c.err = err
		if err == nil {
			c.reply = r.answer(i)
		}
		if r.unconfirmed != nil && changes(c) {
			c.err = r.unconfirmed
		}
	}
}
