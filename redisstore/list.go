package redisstore

import (
	"context"
	"errors"
	"fmt"
	"iter"
	"strings"
	"sync"

	"github.com/redis/go-redis/v9"

	"github.com/holdfast-go/holdfast/driver"
)

// scanCount is how many keys a server looks at for one page of a listing: few
// enough not to hold up others.
const scanCount = 1000

// errBrokenOff ends a scan when the caller has seen enough.
var errBrokenOff = errors.New("broken off")

// List implements [driver.Store]. It walks through all keys of the server, of
// every master in a cluster: the more keys there are, the longer it takes. It
// uses SCAN, so that it holds nobody up.
func (s *Store) List(ctx context.Context, prefix string) iter.Seq2[driver.Record, error] {
	return func(yield func(driver.Record, error) bool) {
		if err := s.usable(ctx); err != nil {
			yield(driver.Record{}, err)
			return
		}
		masters, err := s.masters(ctx)
		if err != nil {
			yield(driver.Record{}, s.fault(err))
			return
		}
		l := listing{s: s, seen: map[string]bool{}, yield: yield, pattern: escapePattern(s.prefix+prefix) + "*"}
		for _, master := range masters {
			err := l.scan(ctx, master)
			if errors.Is(err, errBrokenOff) {
				return
			}
			if err != nil {
				yield(driver.Record{}, s.fault(err))
				return
			}
		}
	}
}

// masters returns the clients of all servers that have keys.
func (s *Store) masters(ctx context.Context) ([]redis.Cmdable, error) {
	cluster, ok := s.client.(*redis.ClusterClient)
	if !ok {
		return []redis.Cmdable{s.client}, nil
	}
	var mu sync.Mutex
	var masters []redis.Cmdable
	err := cluster.ForEachMaster(ctx, func(_ context.Context, master *redis.Client) error {
		mu.Lock()
		defer mu.Unlock()
		masters = append(masters, master)
		return nil
	})
	return masters, err
}

// A listing is one List under way.
type listing struct {
	s       *Store
	pattern string
	seen    map[string]bool // SCAN may yield a key more than once
	yield   func(driver.Record, error) bool
}

func (l *listing) scan(ctx context.Context, master redis.Cmdable) error {
	for cursor := uint64(0); ; {
		if err := l.s.usable(ctx); err != nil {
			return err
		}
		keys, next, err := master.Scan(ctx, cursor, l.pattern, scanCount).Result()
		if err != nil {
			return err
		}
		if err := l.page(ctx, keys); err != nil {
			return err
		}
		if next == 0 {
			return nil
		}
		cursor = next
	}
}

// page yields the records of the locks among these keys.
func (l *listing) page(ctx context.Context, keys []string) error {
	var calls []*call
	for _, key := range keys {
		if isOwn(key) || l.seen[key] || !strings.HasPrefix(key, l.s.prefix) || key == l.s.prefix {
			continue
		}
		l.seen[key] = true
		c := l.s.newCall(lookupScript, key[len(l.s.prefix):])
		l.s.lane(key).put(c)
		calls = append(calls, c)
	}
	for _, c := range calls {
		name := c.lock[len(l.s.prefix):]
		rec, found, err := l.record(ctx, c, name)
		if err != nil && !errors.Is(err, driver.ErrCorrupt) {
			return err
		}
		if (found || err != nil) && !l.yield(rec, err) {
			return errBrokenOff
		}
	}
	return nil
}

// record waits for the record of one lock. An error that concerns this lock
// only is ErrCorrupt, and names it.
func (l *listing) record(ctx context.Context, c *call, name string) (driver.Record, bool, error) {
	reply, err := l.s.answer(ctx, c)
	if err != nil || reply == nil { // It may have ended meanwhile.
		return driver.Record{}, false, err
	}
	description, _ := reply.([]any)
	rec, err := parseRecord(name, description)
	if err != nil {
		return driver.Record{}, false, fmt.Errorf("%q: %w", name, err)
	}
	return rec, true, nil
}
