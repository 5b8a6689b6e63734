package redisstore

import (
	"cmp"
	"context"
	"crypto/sha1"
	_ "embed" // for the scripts
	"encoding/hex"
	"slices"
	"strings"
	"sync"

	"github.com/redis/go-redis/v9"

	"github.com/holdfast-go/holdfast/internal/batch"
)

var (
	//go:embed lua/head.lua
	headLua string
	//go:embed lua/queue.lua
	queueLua string
	//go:embed lua/tail.lua
	tailLua string
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
	acquireScript = newScript(1, acquireLua)
	renewScript   = newScript(2, renewLua)
	releaseScript = newScript(3, releaseLua)
	lookupScript  = newScript(4, lookupLua)
	breakScript   = newScript(5, breakLua)
)

// A script is a Lua script that the server runs in one step. Its source has the text and the
// server's name for it. Of the calls of a batch, those of a script with a lower rank go first.
type script struct {
	rank   int
	source func() (text, sha string)
}

// newScript makes the script of a verb when it is first used, since most programs that link this
// package start without a need for it. It drops the comments: the text is sent whenever a server
// does not know it.
func newScript(rank int, verb string) *script {
	return &script{rank, sync.OnceValues(func() (string, string) {
		var b strings.Builder
		for line := range strings.Lines(headLua + queueLua + verb + tailLua) {
			if !strings.HasPrefix(strings.TrimLeft(line, " \t"), "--") {
				b.WriteString(line)
			}
		}
		sum := sha1.Sum([]byte(b.String()))
		return b.String(), hex.EncodeToString(sum[:])
	})}
}

// A noRetry is a command that the client library never sends a second time. A second release of the
// same lock has another reply, and the repetitions of a refused SCAN take longer than a request
// may.
type noRetry struct{ redis.Cmder }

// NoRetry implements [redis.Cmder].
func (noRetry) NoRetry() bool { return true }

// A call is what a script is to do with one lock.
type call struct {
	kind
	batches              *batch.Queue[*call]
	lock, queue, entries string // the keys

	owner  string // of whose calls none overtakes another; "" if that may be
	number int64  // behind the owner, or alone: a floor or a token
	reply  any
	err    error
}

// A kind is what calls have in common that share a run of a script.
type kind struct {
	script   *script
	tag      string // of the keys' hash slot, in a cluster
	ms       int64  // TTL or keep
	place    int64  // in ms
	limit    int
	tokens   int
	describe string // holder and metadata
}

// runMax is how many locks one run of a script handles: many enough to share its cost, and few
// enough not to hold up the server's other clients.
const runMax = 64

// A scriptRun is one run of a script.
type scriptRun struct {
	kind
	calls       []*call
	cmd         *redis.Cmd
	err         error // of the round trip
	unconfirmed error // why the changes of the run do not count: too few replicas have them
}

// groupCalls divides a batch into runs of scripts: acquisitions first, and releases behind them, so
// that no call of an owner overtakes another.
func groupCalls(batch []*call) []*scriptRun {
	if len(batch) == 1 {
		return []*scriptRun{{kind: batch[0].kind, calls: batch}}
	}
	var all []*scriptRun
	open := make(map[kind]*scriptRun, 2)
	for _, c := range batch {
		r := open[c.kind]
		if r == nil || len(r.calls) == runMax {
			r = &scriptRun{kind: c.kind}
			open[c.kind] = r
			all = append(all, r)
		}
		r.calls = append(r.calls, c)
	}
	slices.SortStableFunc(all, func(a, b *scriptRun) int { return cmp.Compare(a.script.rank, b.script.rank) })
	return all
}

// prepareCommand makes the command of the run: by the hash of the script, or in full for a server
// that does not know it. It passes on pointers, which take no room of their own.
func (s *Store) prepareCommand(r *scriptRun, inFull bool) {
	text, sha := r.script.source()
	shared := &s.sharedKeys
	if r.tag != "" {
		shared = s.sharedKeysOf(r.tag)
	}
	words := make([]any, 0, 13+5*len(r.calls))
	if words = append(words, "evalsha", sha, 0, &shared[0], &shared[1]); inFull {
		words[0], words[1] = "eval", text
	}
	if s.options.RestartGuard > 0 {
		words = append(words, &shared[2])
	}
	for _, c := range r.calls {
		words = append(words, &c.lock)
	}
	for _, c := range r.calls {
		words = append(words, &c.queue)
	}
	for _, c := range r.calls {
		words = append(words, &c.entries)
	}
	words[2] = len(words) - 3
	words = append(words, &s.conditions, len(r.calls))
	switch r.script {
	case acquireScript:
		words = append(words, &s.listener.channel, &r.ms, &r.place, r.limit, r.tokens, &r.describe)
	case renewScript:
		words = append(words, &s.listener.channel, &r.ms)
	case releaseScript:
		words = append(words, &r.ms)
	}
	for _, c := range r.calls {
		if c.owner != "" {
			words = append(words, &c.owner)
		}
		if r.script != releaseScript && r.script != lookupScript {
			words = append(words, &c.number)
		}
	}
	r.cmd = redis.NewCmd(context.Background(), words...)
}

// distribute gives every call of the run its reply.
func (r *scriptRun) distribute() {
	reply, err := r.cmd.Result()
	if err == nil && reply == nil {
		// The connection could not be set up, with a wrong password for instance: the client
		// library reports that for the round trip only.
		err = r.err
	}
	replies, _ := reply.([]any)
	if err == nil && len(replies) != len(r.calls) {
		err = errReply("another number of answers than questions")
	}
	for i, c := range r.calls {
		if c.err = err; err != nil {
			continue
		}
		if c.reply = replies[i]; r.unconfirmed != nil && c.mustSurviveFailover() {
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
		return c.ms > 0 && c.reply == int64(1)
	}
	return c.script == renewScript && len(words) == 2 && words[0] == "held"
}
