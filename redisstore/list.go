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

// errStopped ends a scan when the caller stops the iteration.
var errStopped = errors.New("broken off")

// List implements [driver.Store]. It goes through all keys of the server, of every master in a
// cluster: the more keys there are, the longer it takes. It uses SCAN, so that it does not hold up
// other clients.
func (s *Store) List(ctx context.Context, prefix string) iter.Seq2[driver.Record, error] {
	return func(yield func(driver.Record, error) bool) {
		if err := s.checkUsable(ctx); err != nil {
			yield(driver.Record{}, err)
			return
		}
		masters, err := withDeadline(s, ctx, s.masters)
		if err != nil {
			yield(driver.Record{}, s.wrapErr(err))
			return
		}
		l := listing{s: s, seen: map[string]bool{}, yield: yield, pattern: escapePattern(s.prefix+prefix) + "*"}
		for _, master := range masters {
			err := l.scanMaster(ctx, master)
			if errors.Is(err, errStopped) {
				return
			}
			if err != nil {
				yield(driver.Record{}, s.wrapErr(err))
				return
			}
		}
	}
}

// masters returns the clients of all servers that have keys.
func (s *Store) masters(ctx context.Context) ([]redis.UniversalClient, error) {
	cluster, ok := s.client.(*redis.ClusterClient)
	if !ok {
		return []redis.UniversalClient{s.client}, nil
	}
	var mu sync.Mutex
	var masters []redis.UniversalClient
	err := cluster.ForEachMaster(ctx, func(_ context.Context, master *redis.Client) error {
		mu.Lock()
		defer mu.Unlock()
		masters = append(masters, master)
		return nil
	})
	return masters, err
}

// A scanOnce is a SCAN that the client library does not repeat: the repetitions of a refused one
// would take longer than a request may.
type scanOnce struct {
	*redis.ScanCmd
}

// NoRetry implements [redis.Cmder].
func (scanOnce) NoRetry() bool { return true }

// A listing is one List under way.
type listing struct {
	s       *Store
	pattern string
	seen    map[string]bool // SCAN may yield a key more than once
	yield   func(driver.Record, error) bool
}

func (l *listing) scanMaster(ctx context.Context, master redis.UniversalClient) error {
	for cursor := uint64(0); ; {
		if err := l.s.checkUsable(ctx); err != nil {
			return err
		}
		page, err := withDeadline(l.s, ctx, func(ctx context.Context) (*redis.ScanCmd, error) {
			scan := redis.NewScanCmd(ctx, nil, "scan", cursor, "match", l.pattern, "count", scanCount)
			return scan, master.Process(ctx, scanOnce{scan})
		})
		if err != nil {
			return err
		}
		keys, next := page.Val()
		if err := l.yieldPage(ctx, keys); err != nil {
			return err
		}
		if next == 0 {
			return nil
		}
		cursor = next
	}
}

// yieldPage yields the records of the locks among these keys.
func (l *listing) yieldPage(ctx context.Context, keys []string) error {
	var calls []*call
	for _, key := range keys {
		name, ok := strings.CutPrefix(key, l.s.prefix)
		if !ok || name == "" || len(name) > driver.MaxName || !isPlain(name) || l.seen[key] {
			continue // The key belongs to another prefix, is beside the locks, or cannot be the name of one.
		}
		l.seen[key] = true
		calls = append(calls, l.s.newCall(lookupScript, name))
	}
	for i, err := range l.s.runCalls(ctx, calls) {
		if err != nil {
			return err
		}
		if calls[i].reply == nil {
			continue // The hold has ended meanwhile.
		}
		description, _ := calls[i].reply.([]any)
		rec, err := parseRecord(calls[i].lock[len(l.s.prefix):], description)
		if err != nil {
			return err
		}
		if !l.yield(rec, nil) {
			return errStopped
		}
	}
	return nil
}
