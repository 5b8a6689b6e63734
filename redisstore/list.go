package redisstore

import (
	"context"
	"errors"
	"iter"
	"strings"
	"sync"

	"github.com/redis/go-redis/v9"

	"github.com/holdfast-go/holdfast/driver"
)

// scanCount is how many keys a server reads for one page of a listing: few enough not to hold up
// others.
const scanCount = 1000

// List implements [driver.Store]. It goes through all keys of the database, of every master in a
// cluster: beside millions of other keys it takes seconds. It uses SCAN, so that it does not hold
// up other clients. A replica is asked in vain, as for all else, since it may have an old list.
func (s *Store) List(ctx context.Context, prefix string) iter.Seq2[driver.Record, error] {
	return func(yield func(driver.Record, error) bool) {
		if _, err := s.Lookup(ctx, ""); err != nil { // A replica refuses it also if it has no lock.
			yield(driver.Record{}, err)
			return
		}
		masters := []redis.UniversalClient{s.client}
		if cluster, ok := s.client.(*redis.ClusterClient); ok {
			limited, cancel := context.WithTimeout(ctx, requestBound)
			var mu sync.Mutex
			masters = nil
			err := cluster.ForEachMaster(limited, func(_ context.Context, master *redis.Client) error {
				mu.Lock()
				defer mu.Unlock()
				masters = append(masters, master)
				return nil
			})
			cancel()
			if err != nil {
				yield(driver.Record{}, s.wrapErr(err))
				return
			}
		}
		pattern, seen := escapePattern(s.prefix+prefix)+"*", map[string]bool{} // SCAN may yield a key more than once.
		for _, master := range masters {
			for cursor, more := uint64(0), true; more; more = cursor != 0 {
				calls, next, err := s.pageOfCalls(ctx, master, pattern, cursor, seen)
				if err != nil {
					yield(driver.Record{}, s.wrapErr(err))
					return
				}
				for i, err := range s.runCalls(ctx, calls) {
					var records []driver.Record
					if err == nil {
						records, err = parseRecords(calls[i].lock[len(s.prefix):], calls[i].reply)
					}
					if err != nil && (!yield(driver.Record{}, err) || !errors.Is(err, driver.ErrCorrupt)) {
						return // Only keys of a wrong type concern one name alone.
					}
					for _, rec := range records {
						if !yield(rec, nil) {
							return
						}
					}
				}
				cursor = next
			}
		}
	}
}

// pageOfCalls returns calls that look up the locks on one page of a SCAN, except those seen, and
// the cursor of the next page.
func (s *Store) pageOfCalls(ctx context.Context, master redis.UniversalClient, pattern string, cursor uint64, seen map[string]bool) ([]*call, uint64, error) {
	if err := s.checkUsable(ctx); err != nil {
		return nil, 0, err
	}
	limited, cancel := context.WithTimeout(ctx, requestBound)
	defer cancel()
	scan := redis.NewScanCmd(limited, nil, "scan", cursor, "match", pattern, "count", scanCount)
	if err := master.Process(limited, noRetry{scan}); err != nil {
		return nil, 0, err
	}
	keys, next := scan.Val()
	var calls []*call
	for _, key := range keys {
		name, ok := strings.CutPrefix(key, s.prefix)
		if !ok || name == "" || len(name) > driver.MaxName || !isPlain(name) || seen[key] {
			continue // The key belongs to another prefix, is beside the locks, or cannot be the name of one.
		}
		seen[key] = true
		calls = append(calls, s.newCall(lookupScript, s.common, name))
	}
	return calls, next, nil
}
