package s3store

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"iter"
	"math/rand/v2"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/service/s3"

	"github.com/holdfast-go/holdfast/driver"
	"github.com/holdfast-go/holdfast/internal/lockqueue"
	"github.com/holdfast-go/holdfast/internal/retry"
)

// DefaultPrefix is put in front of all keys by default.
const DefaultPrefix = "holdfast/"

const (
	grain     = 2 * time.Second       // how late a store that waits may see the end of an entry
	maxPause  = 50 * time.Millisecond // for each entry, before a verb begins anew
	maxNames  = 1 << 14               // of which a store remembers what it has seen
	maxPrefix = 240                   // bytes: a key has 1024 at most, and that of the longest name 771
)

// Options change how a store works. The zero value and nil are the defaults.
type Options struct {
	// Prefix is put in front of all keys. "" means [DefaultPrefix]. All programs that are to
	// exclude each other need the same.
	Prefix string
}

// A Store keeps locks in a bucket. See the package comment for what it promises. Its methods may be
// called from many goroutines at once.
type Store struct {
	client  *s3.Client
	bucket  string
	prefix  string
	end     func()      // of what was opened with the store
	checked atomic.Bool // the server has refused writes whose conditions did not hold
	closed  atomic.Bool
	created time.Time

	mu    sync.Mutex
	names map[string]*sighting
}

// New returns a store that uses a client of the caller. No request is sent. Close leaves the client
// as it is.
func New(client *s3.Client, bucket string, opts *Options) (*Store, error) {
	if opts == nil {
		opts = &Options{}
	}
	prefix := cmp.Or(opts.Prefix, DefaultPrefix)
	control := func(r rune) bool { return r < ' ' || r == 0x7f }
	switch {
	case client == nil || bucket == "":
		return nil, fmt.Errorf("%w: no S3 client, or no bucket", driver.ErrInvalid)
	case len(prefix) > maxPrefix || prefix == "./" || !fs.ValidPath(strings.TrimSuffix(prefix, "/")) ||
		strings.ContainsFunc(prefix, control):
		return nil, fmt.Errorf("%w: the prefix is no path as in a/b/, has a control character, or more than %d bytes",
			driver.ErrInvalid, maxPrefix)
	}
	return &Store{
		client: client, bucket: bucket, prefix: prefix, end: func() {},
		created: time.Now(), names: map[string]*sighting{},
	}, nil
}

// Guarantees implements [driver.Store].
func (s *Store) Guarantees() driver.Guarantees {
	return driver.Guarantees{
		Store: "s3", Fencing: true, Queue: true, Limits: true, Keep: true, Tokens: driver.MaxTokens, Grain: grain,
		Crash: driver.FateKept, Restart: driver.FateKept, Failover: driver.FateKept,
	}
}

// Close implements [driver.Store].
func (s *Store) Close() error {
	s.closed.Store(true)
	s.end()
	return nil
}

// now is the clock of the store: what has passed since 1970, and does not jump.
func (s *Store) now() time.Duration {
	return time.Duration(s.created.UnixNano()) + time.Since(s.created)
}

// Acquire implements [driver.Store].
func (s *Store) Acquire(ctx context.Context, req driver.Request) (driver.Result, error) {
	return update(ctx, s, req.Name, func(q *queue, now time.Duration) (driver.Result, error) {
		q.counter.Clock = time.Now().UnixMicro()
		own, _, err := q.Acquire(&req, data{Holder: req.Holder, Metadata: req.Metadata}, now, &q.counter)
		res := driver.Result{
			Granted: own.State == driver.Held, Waiting: own.State == driver.Waiting, Token: own.Token,
		}
		if err == nil && !res.Granted {
			res.Held = q.describe(req.Name, q.Holds()[0], now)
		}
		return res, err
	})
}

// Renew implements [driver.Store]. It writes the records of several names at once, each also if the
// end stays as it is for this store: another one may have seen the entry sooner, and expect an
// earlier end.
func (s *Store) Renew(ctx context.Context, reqs []driver.RenewRequest) ([]driver.Entry, error) {
	entries, errs := make([]driver.Entry, len(reqs)), make([]error, len(reqs))
	var group sync.WaitGroup
	for i, req := range reqs {
		group.Go(func() {
			entries[i], errs[i] = update(ctx, s, req.Name, func(q *queue, now time.Duration) (driver.Entry, error) {
				own, _ := q.Renew(req.Owner, req.Token, req.TTL, now)
				q.urgent = own.State == driver.Held
				q.anew(req.Owner, own.State != driver.Lost)
				return own, nil
			})
		})
	}
	group.Wait()
	return entries, cmp.Or(errs...)
}

// Release implements [driver.Store]. It writes also if there is no entry: an Acquire of the owner
// that is still on its way then finds its version gone.
func (s *Store) Release(ctx context.Context, req driver.ReleaseRequest) (bool, error) {
	return update(ctx, s, req.Name, func(q *queue, now time.Duration) (bool, error) {
		found, _ := q.Release(req.Owner, req.Keep, now)
		q.changed, q.urgent = true, true
		q.anew(req.Owner, req.Keep > 0)
		return found, nil
	})
}

// Break implements [driver.Store].
func (s *Store) Break(ctx context.Context, name string, token int64) ([]driver.Record, error) {
	return update(ctx, s, name, func(q *queue, now time.Duration) (records []driver.Record, err error) {
		ended, promoted := q.Break(token, now)
		for i := range ended {
			rec := q.describe(name, &ended[i], now)
			rec.Waiting += len(promoted)
			records = append(records, rec)
		}
		return records, nil
	})
}

// Lookup implements [driver.Store].
func (s *Store) Lookup(ctx context.Context, name string) ([]driver.Record, error) {
	return update(ctx, s, name, func(q *queue, now time.Duration) (records []driver.Record, err error) {
		q.looks = true
		q.Settle(now)
		for _, e := range q.Holds() {
			records = append(records, q.describe(name, e, now))
		}
		return records, nil
	})
}

// List implements [driver.Store]. It reads the object of every name.
func (s *Store) List(ctx context.Context, prefix string) iter.Seq2[driver.Record, error] {
	return func(yield func(driver.Record, error) bool) {
		if s.closed.Load() {
			yield(driver.Record{}, driver.ErrClosed)
			return
		}
		in := &s3.ListObjectsV2Input{Bucket: &s.bucket, Prefix: aws.String(s.prefix + encode(prefix))}
		for pages := s3.NewListObjectsV2Paginator(s.client, in); pages.HasMorePages(); {
			limited, cancel := context.WithTimeout(ctx, readBound)
			page, err := pages.NextPage(limited, once)
			cancel()
			if err != nil {
				yield(driver.Record{}, driver.NotApplied(explain("LIST", err)))
				return
			}
			for _, object := range page.Contents {
				name, ok := decode(strings.TrimPrefix(aws.ToString(object.Key), s.prefix))
				if !ok {
					continue
				}
				records, err := s.Lookup(ctx, name)
				if err != nil && (!yield(driver.Record{}, err) || !errors.Is(err, driver.ErrCorrupt)) {
					return
				}
				for _, rec := range records {
					if !yield(rec, nil) {
						return
					}
				}
			}
		}
	}
}

// update carries out a verb on a name: it writes what the verb has changed, if the object is still
// as this store has seen it last. If it has changed meanwhile, the verb begins anew, with another
// queue. So what a verb has found is true at the moment of its write. What changes nothing, a
// refusal for instance, is answered from a record that was read during the call. The more entries
// there are, the longer a place pauses before it begins anew: a hold does not, nor does a release,
// so that many waiters do not keep a hold from being renewed.
func update[R any](ctx context.Context, s *Store, name string, verb func(*queue, time.Duration) (R, error)) (none R, err error) {
	seen, err := s.enter(ctx, name)
	if err != nil {
		return none, err
	}
	defer func() { <-seen.turn }()
	current, contended := false, false
	for {
		if !seen.known {
			value, tag, err := s.get(ctx, s.prefix+encode(name))
			switch {
			case err != nil && contended && ctx.Err() != nil:
				return none, &driver.RetryError{Err: fmt.Errorf("others have changed the object each time: %w", ctx.Err())}
			case err != nil:
				return none, driver.NotApplied(err)
			}
			rec, err := parse(name, value)
			if err != nil {
				return none, err
			}
			seen.see(rec, tag, s.now())
			current = true
		}
		now := s.now()
		q := &queue{counter: lockqueue.Counter{Last: seen.record.Last}}
		for _, e := range seen.record.Entries {
			q.Restore(&e)
		}
		result, refused := verb(q, now)
		next, changed := q.record(seen.record, now)
		if !changed || refused != nil {
			if current {
				return result, refused
			}
			seen.known = false
			continue
		}
		value, err := json.Marshal(next)
		if err == nil {
			err = s.check(ctx)
		}
		if err != nil {
			return none, driver.NotApplied(err)
		}
		tag, err := s.put(ctx, s.prefix+encode(name), value, seen.tag)
		if err == nil {
			seen.see(next, tag, s.now())
			return result, nil
		}
		if !errors.Is(err, errChanged) {
			return none, err
		}
		contended = contended || current
		seen.known, current = false, false
		if contended && !q.urgent { // Otherwise what was seen was old, or the holder is to be in front.
			_ = retry.Sleep(ctx, rand.N(maxPause*time.Duration(q.Len()+1)))
		}
	}
}

// enter waits until no other call of this store is at work on the name: they would only change the
// object for each other. A name that is forgotten may have two calls, and its entries may last for
// their time once more.
func (s *Store) enter(ctx context.Context, name string) (*sighting, error) {
	if s.closed.Load() {
		return nil, driver.ErrClosed
	}
	if err := ctx.Err(); err != nil {
		return nil, driver.NotApplied(err)
	}
	s.mu.Lock()
	seen := s.names[name]
	if seen == nil {
		for other := range s.names {
			if len(s.names) < maxNames {
				break
			}
			delete(s.names, other)
		}
		seen = &sighting{turn: make(chan struct{}, 1)}
		s.names[name] = seen
	}
	s.mu.Unlock()
	select {
	case seen.turn <- struct{}{}:
		return seen, nil
	case <-ctx.Done():
		return nil, driver.NotApplied(ctx.Err())
	}
}
