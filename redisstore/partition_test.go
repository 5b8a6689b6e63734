//go:build unix

package redisstore_test

import (
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/holdfast-go/holdfast"
	"github.com/holdfast-go/holdfast/driver"
	"github.com/holdfast-go/holdfast/internal/faultproxy"
	"github.com/holdfast-go/holdfast/internal/servers"
	"github.com/holdfast-go/holdfast/redisstore"
)

// cutKinds are the ways in which a holder can be cut off.
var cutKinds = []struct {
	what string
	ways []faultproxy.Direction
}{
	{"everything is lost", []faultproxy.Direction{faultproxy.Up, faultproxy.Down}},
	{"requests are lost", []faultproxy.Direction{faultproxy.Up}},
	{"replies are lost", []faultproxy.Direction{faultproxy.Down}},
}

// A holder that is cut off knows that its lock is lost before anybody else can
// have it, in whatever way it is cut off, and wherever in its cycle of renewals
// the cut falls.
func TestPartitionedHolder(t *testing.T) {
	t.Parallel()
	for _, kind := range cutKinds {
		t.Run(kind.what, func(t *testing.T) {
			t.Parallel()
			p := startPartition(t, kind.ways)
			cuts, lanes := rounds(t, 6), 6
			results := make(chan []time.Duration, lanes)
			for lane := range lanes {
				go func() {
					var all []time.Duration
					for i := lane; i < cuts; i += lanes {
						m, err := p.cut(fmt.Sprint("name/", i))
						if err != nil {
							t.Errorf("cut %d: %v", i, err)
							break
						}
						all = append(all, m)
					}
					results <- all
				}()
			}
			var all []time.Duration
			for range lanes {
				all = append(all, <-results...)
			}
			if len(all) == 0 {
				return // The reason has been reported.
			}
			least := slices.Min(all)
			t.Logf("%d cuts: the deadline was over at least %v before another client was granted the lock", len(all), least)
			if least <= 0 {
				t.Errorf("a holder believed in its lock for %v after the grant to another client", -least)
			}
		})
	}
}

// A partition is a server, with other clients that can reach it always.
type partition struct {
	t      *testing.T
	ways   []faultproxy.Direction
	server *servers.Redis
	other  *redisstore.Store
}

func startPartition(t *testing.T, ways []faultproxy.Direction) *partition {
	server := servers.StartRedis(t)
	client := redis.NewClient(&redis.Options{Addr: server.Addr, ContextTimeoutEnabled: true})
	other := redisstore.New(client, nil)
	t.Cleanup(func() {
		_ = other.Close()
		_ = client.Close()
	})
	return &partition{t: t, ways: ways, server: server, other: other}
}

// cut cuts a holder off at a random moment, lets another client take the lock
// as soon as it can, and mends the network. It returns how long before the grant to that client the
// deadline of the holder was over.
func (p *partition) cut(name string) (time.Duration, error) {
	const ttl = 3 * time.Second // A busy machine must be able to renew in time.
	proxy := faultproxy.Start(p.t, p.server.Addr)
	proxy.Delay(faultproxy.Down, 0, 100*time.Millisecond) // The TTL does not begin when the answer comes.
	holder := connect(p.t, proxy.Addr(), nil)
	lock, err := holder.Acquire(p.t.Context(), name, &holdfast.Options{TTL: ttl})
	if err != nil {
		return 0, err
	}
	isCut := time.AfterFunc(rand.N(2*ttl), func() {
		for _, way := range p.ways {
			proxy.Hold(way)
		}
	})
	defer isCut.Stop()

	next := driver.Request{Name: name, Owner: "the next of " + name, Holder: "other", TTL: time.Minute}
	granted, err := p.takeOver(next)
	if err != nil {
		return 0, err
	}
	if isCut.Stop() {
		return 0, errors.New("another client has the lock of a holder that was not cut off")
	}
	if lock.Err() == nil {
		return 0, errors.New("another client has the lock, and its first holder believes in it")
	}
	at := time.UnixMicro(granted.Token) // The token is the server's clock, which is ours as well.
	select {
	case <-lock.Context().Done():
	case <-time.After(bound):
		return 0, fmt.Errorf("the context of a lost lock goes on %v later", bound)
	}
	for _, way := range p.ways {
		proxy.Pass(way)
	}
	if err := lock.Release(); !errors.Is(err, holdfast.ErrLost) {
		return 0, fmt.Errorf("the release of a lost lock: %w, want ErrLost", err)
	}
	if _, err := holder.TryAcquire(p.t.Context(), name, nil); !errors.Is(err, holdfast.ErrHeld) {
		return 0, fmt.Errorf("the former holder, connected again, tries for the lock of its successor: %w, want ErrHeld", err)
	}
	return at.Sub(lock.Deadline()), p.undisturbed(next, granted.Token)
}

// takeOver tries for a lock until it is granted.
func (p *partition) takeOver(req driver.Request) (driver.Result, error) {
	pace := time.NewTicker(time.Millisecond)
	defer pace.Stop()
	for deadline := time.Now().Add(bound); time.Now().Before(deadline); <-pace.C {
		res, err := p.other.Acquire(p.t.Context(), req)
		if err != nil || res.Granted {
			return res, err
		}
	}
	return driver.Result{}, fmt.Errorf("the lock of a holder that was cut off is not free after %v", bound)
}

// undisturbed reports whether what the former holder had sent, which arrives
// now that it is connected again, leaves its successor alone.
func (p *partition) undisturbed(req driver.Request, token int64) error {
	recs, err := p.other.Lookup(p.t.Context(), req.Name)
	if err == nil && (len(recs) != 1 || recs[0].Token != token) {
		err = fmt.Errorf("the successor with token %d has lost its lock to its predecessor: %+v", token, recs)
	}
	return err
}
