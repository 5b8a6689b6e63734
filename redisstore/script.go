package redisstore

import (
	"context"
	"crypto/sha1"
	"embed"
	"encoding/hex"
	"fmt"
	"slices"
	"strings"
	"sync"

	"github.com/redis/go-redis/v9"
)

//go:embed lua
var luaFiles embed.FS

// The scripts. Each handles any number of locks, so that many calls share the cost of one.
var (
	acquireScript = newScript("acquire", true)
	renewScript   = newScript("renew", false)
	releaseScript = newScript("release", false)
	lookupScript  = newScript("lookup", false)
	breakScript   = newScript("break", false)
)

// A script is a Lua script that the server runs in one step.
type script struct {
	source func() (text string, sha any) // sha is the server's name for it
	counts bool                          // the keys of the tokens are in front of those of the locks
}

// newScript makes the script of a verb when it is first used, since most programs that link this
// package start without a need for it.
func newScript(verb string, counts bool) *script {
	return &script{counts: counts, source: sync.OnceValues(func() (string, any) {
		read := func(name string) string {
			text, _ := luaFiles.ReadFile("lua/" + name + ".lua") // It is there.
			return string(text)
		}
		offset := "local offset = 0\n"
		if counts {
			offset = "local offset = 2\n"
		}
		text := offset + read("head") + strings.Replace(read(verb), "-- include queue.lua\n", read("queue"), 1) + read("tail")
		sum := sha1.Sum([]byte(text))
		return text, hex.EncodeToString(sum[:])
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
	runKey
	lock, queue, entries string    // the keys of this one
	order                string    // the name of the call for its sender; "" for one without an order
	words                [2]string // for this lock, as many as args says: see the files of the scripts

	reply       any
	err         error
	unconfirmed error // why a change does not count: too few replicas have it
}

// A runKey is what calls have in common that share a run of a script.
type runKey struct {
	script *script
	tag    string // of the keys' hash slot, in a cluster
	common string // what the script is told once for all of them
	args   int    // how many words each has
}

// runMax is how many locks one run of a script handles: many enough to share its cost, and few
// enough not to hold up the server's other clients.
const runMax = 64

// A scriptRun is one run of a script.
type scriptRun struct {
	runKey
	calls []*call
	cmd   *redis.Cmd
}

// sendBatch divides a batch into runs of scripts, and sends them in one round trip, and in another
// one those whose scripts a server does not know.
func (s *Store) sendBatch(ctx context.Context, batch []*call) {
	var runs []scriptRun
	for n, c := range batch {
		i := slices.IndexFunc(runs, func(r scriptRun) bool { return r.runKey == c.runKey && len(r.calls) < runMax })
		if i < 0 {
			runs = append(runs, scriptRun{runKey: c.runKey, calls: batch[n : n+1 : n+1]})
			continue
		}
		runs[i].calls = append(runs[i].calls, c)
	}
	s.send(ctx, runs, false)
	runs = slices.DeleteFunc(runs, func(r scriptRun) bool {
		err := r.cmd.Err()
		return err == nil || !redis.HasErrorPrefix(err, "NOSCRIPT")
	})
	if len(runs) > 0 {
		s.send(ctx, runs, true)
	}
}

// send sends runs in one round trip: by the hashes of their scripts, or in full to a server that
// does not know them. With MinReplicas, WAIT is behind them in the same pipeline. The client
// library has connections for pipelines alone, so that other work of the program does not hold them
// up.
func (s *Store) send(ctx context.Context, runs []scriptRun, inFull bool) {
	pipe := s.client.Pipeline()
	for i := range runs {
		runs[i].cmd = redis.NewCmd(ctx, s.words(&runs[i], inFull)...)
		_ = pipe.Process(ctx, noRetry{runs[i].cmd}) // A pipeline only records it here.
	}
	var wait *redis.IntCmd
	if s.options.MinReplicas > 0 {
		wait = redis.NewIntCmd(ctx, "wait", s.options.MinReplicas, s.options.ReplicaTimeout.Milliseconds())
		_ = pipe.Process(ctx, wait)
	}
	_, failed := pipe.Exec(ctx)
	var unconfirmed error // What was acquired is not undone here: its caller looks at it, or releases it.
	if wait != nil {
		if confirmed, err := wait.Result(); err != nil {
			unconfirmed = fmt.Errorf("it is not known how many replicas have confirmed, want %d (MinReplicas): %v", s.options.MinReplicas, err)
		} else if int(confirmed) < s.options.MinReplicas {
			unconfirmed = fmt.Errorf("%d replicas have confirmed in time, want %d (MinReplicas)", confirmed, s.options.MinReplicas)
		}
	}
	for _, r := range runs {
		reply, err := r.cmd.Result()
		if err == nil && reply == nil {
			// The connection could not be set up, with a wrong password for instance: the client
			// library reports that for the round trip only.
			err = failed
		}
		replies, _ := reply.([]any)
		if err == nil && len(replies) != len(r.calls) {
			err = errReply("another number of answers than questions")
		}
		for i, c := range r.calls {
			if c.err = err; err == nil {
				c.reply, c.unconfirmed = replies[i], unconfirmed
			}
		}
	}
}

// words returns the command of a run. It has pointers to strings, since a string allocates when it
// becomes an interface.
func (s *Store) words(r *scriptRun, inFull bool) []any {
	text, sha := r.script.source()
	words := make([]any, 0, 8+5*len(r.calls))
	if words = append(words, "evalsha", sha, 0); inFull {
		words[0], words[1] = "eval", text
	}
	switch {
	case !r.script.counts:
	case r.tag == "":
		words = append(words, &s.counter, &s.ahead)
	default:
		words = append(words, r.tag+s.counter, r.tag+s.ahead)
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
	if s.options.RestartGuard > 0 {
		words = append(words, s.prefix+guardSuffix)
	}
	words[2] = len(words) - 3
	words = append(words, &r.common)
	for _, c := range r.calls {
		for i := range c.args {
			words = append(words, &c.words[i])
		}
	}
	return words
}
