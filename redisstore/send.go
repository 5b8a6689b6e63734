package redisstore

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/holdfast-go/holdfast/driver"
	"github.com/holdfast-go/holdfast/internal/batch"
)

const (
	// maxBatch is how many calls go into one batch, and inFlight how many batches are sent to a
	// server beside each other.
	maxBatch = 1024
	inFlight = 2

	// requestBound limits a request whose context has no deadline, and a batch.
	requestBound = 3 * time.Second

	// stuckAfter is how long a batch holds up others.
	stuckAfter = 250 * time.Millisecond

	// minInline is the least time that a caller must have left to send calls on its own goroutine.
	// With less, another goroutine sends them, to the full bound, so that the release that follows
	// a call given up does not overtake it on another connection.
	minInline = 900 * time.Millisecond
)

// senderOf returns the sender of the calls for a lock. Each master of a cluster has its own, so
// that one that hangs holds up no lock of another. A lock keeps its sender, and
// its calls their order behind one that was given up, unless its slot moves.
func (s *Store) senderOf(ctx context.Context, lock string) *batch.Queue[*call] {
	master := ""
	if cluster, ok := s.client.(*redis.ClusterClient); ok {
		if client, err := cluster.MasterForKey(ctx, lock); err == nil { // else the call has the error, too
			master = client.Options().Addr
		}
	}
	sender, ok := s.senders.Load(master)
	if !ok {
		q := &batch.Queue[*call]{
			Send: s.sendBatch, Name: func(c *call) string { return c.order },
			InFlight: inFlight, Max: maxBatch, Bound: requestBound, StuckAfter: stuckAfter,
		}
		if s.honorsDeadline {
			q.MinInline = minInline
		}
		sender, _ = s.senders.LoadOrStore(master, q)
	}
	return sender.(*batch.Queue[*call])
}

// newCall makes a call. In a cluster the keys beside the lock begin with a hash tag, unless the
// prefix has one, which puts all keys into one slot. A client that takes a node of a cluster for a
// single server has the same counter then. With every other prefix the server refuses it, since the
// counter and the tokens ahead are in different slots.
func (s *Store) newCall(script *script, common, name string, words ...string) *call {
	c := &call{runKey: runKey{script: script, common: common, args: len(words)}}
	copy(c.words[:], words)
	lock := s.prefix + name
	if s.cluster && !s.prefixHasTag {
		c.tag = slotTags()[slotOf(lock)]
	}
	keys := c.tag + s.prefix + queueInfix + lock + c.tag + s.prefix + entriesInfix + lock // one allocation
	c.queue = keys[:(len(keys)+len(queueInfix)-len(entriesInfix))/2]
	c.entries, c.lock = keys[len(c.queue):], c.queue[len(c.queue)-len(lock):]
	return c
}

// runCall makes a call and returns its reply.
func (s *Store) runCall(ctx context.Context, c *call) (any, error) {
	if err := s.checkUsable(ctx); err != nil {
		return nil, err
	}
	if err := s.senderOf(ctx, c.lock).Do(ctx, c); err != nil {
		return nil, s.wrapErr(err)
	}
	return s.readReply(c)
}

// runCalls makes calls, and returns the error of each. The replies are in the calls.
func (s *Store) runCalls(ctx context.Context, calls []*call) []error {
	errs := make([]error, len(calls))
	bySender := map[*batch.Queue[*call]][]int{}
	for i, c := range calls {
		sender := s.senderOf(ctx, c.lock)
		bySender[sender] = append(bySender[sender], i)
	}
	var group sync.WaitGroup
	for sender, places := range bySender {
		group.Go(func() {
			together := make([]*call, len(places))
			for i, place := range places {
				together[i] = calls[place]
			}
			err := sender.Do(ctx, together...)
			for _, place := range places {
				if errs[place] = s.wrapErr(err); err == nil {
					_, errs[place] = s.readReply(calls[place])
				}
			}
		})
	}
	group.Wait()
	return errs
}

// readReply returns the reply to a call, or the error that the reply stands for.
func (s *Store) readReply(c *call) (any, error) {
	if c.err != nil {
		if refusal := redis.Error(nil); errors.As(c.err, &refusal) {
			return nil, s.explainFailure(c, refusal.Error())
		}
		return nil, s.wrapErr(c.err)
	}
	words, _ := c.reply.([]any)
	if len(words) == 0 {
		return c.reply, nil
	}
	switch words[0] {
	case "again":
		return nil, errors.New("the owner has an entry")
	case "abstains":
		left, _ := words[1].(int64)
		return nil, &driver.RetryError{Err: errGuarded, After: time.Duration(left) * time.Millisecond}
	case "ahead":
		return nil, fmt.Errorf("%w: the floor of the token is more than %v above the server's clock", driver.ErrInvalid, driver.MaxLead)
	case "last":
		return nil, fmt.Errorf("%w: there is no token as great as the request needs: see the keys %q and %q",
			driver.ErrInvalid, c.tag+s.prefix+counterSuffix, c.tag+s.prefix+aheadSuffix)
	case "type":
		return nil, fmt.Errorf("%w: the key %q is a %v and no lock of this package: it is left alone, since it may be data; "+
			"DEL ends it if it is the lock of another kind of client", driver.ErrInvalid, c.lock, words[len(words)-1])
	case "failed":
		text, _ := words[len(words)-1].(string)
		if words[1] == int64(1) {
			return nil, hint(errors.New(text), "a part of it was done; the user must be allowed the commands in the scripts")
		}
		return nil, s.explainFailure(c, text)
	}
	return c.reply, nil
}

// explainFailure explains the error reply to a call.
func (s *Store) explainFailure(c *call, text string) error {
	if known := errorText(text); strings.HasPrefix(known, "value is not an integer") || strings.HasPrefix(known, "WRONGTYPE ") ||
		strings.HasPrefix(known, "increment or decrement would overflow") {
		return fmt.Errorf("%w: of the keys %q (a number), %q and %q (sorted sets), %q (a hash), and with a RestartGuard %q (a text) one is "+
			"something else, see TYPE and GET: DEL that one only; without the first, tokens begin anew at the server's clock (%s)",
			driver.ErrCorrupt, c.tag+s.prefix+counterSuffix, c.tag+s.prefix+aheadSuffix, c.queue, c.entries, s.prefix+guardSuffix, firstLine(text))
	}
	return s.explainReply(errors.New(text))
}

// errGuarded is the error of a server that may have forgotten locks; see [Options].RestartGuard.
var errGuarded = errors.New("the Redis server may have forgotten locks, since it was restarted, emptied or promoted, and grants none for a while (RestartGuard)")

// checkUsable returns why the store cannot make requests.
func (s *Store) checkUsable(ctx context.Context) error {
	if s.closed.Load() {
		return driver.ErrClosed
	}
	if s.configErr != nil {
		return s.configErr
	}
	return driver.NotApplied(ctx.Err())
}
