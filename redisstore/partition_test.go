//go:build unix

package redisstore_test

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"os"
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

// The margins of a cut: how long before another client was granted the lock its
// former holder stopped believing in it.
type margins struct {
	deadline time.Duration // by the deadline, which Lock.Err goes by
	context  time.Duration // by the end of the context, which a timer announces
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
			results := make(chan []margins, lanes)
			for lane := range lanes {
				go func() {
					var all []margins
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
			var all []margins
			for range lanes {
				all = append(all, <-results...)
			}
			judge(t, all)
		})
	}
}

// judge looks at the margins of many cuts. Those of the deadline are exact. The
// context depends on a timer, which a machine that is busy with other things
// may run late: there the short run looks at the middle of all cuts.
func judge(t *testing.T, all []margins) {
	t.Helper()
	if len(all) == 0 {
		return
	}
	byDeadline, byContext := make([]time.Duration, len(all)), make([]time.Duration, len(all))
	for i, m := range all {
		byDeadline[i], byContext[i] = m.deadline, m.context
	}
	slices.Sort(byDeadline)
	slices.Sort(byContext)
	t.Logf("%d cuts: the deadline was over at least %v before another client was granted the lock, the context %v (in the middle %v)",
		len(all), byDeadline[0], byContext[0], byContext[len(all)/2])
	if byDeadline[0] <= 0 {
		t.Errorf("a holder believed in its lock for %v after the grant to another client", -byDeadline[0])
	}
	judged := byContext[len(all)/2]
	if os.Getenv("TEST_ROUNDS") != "" {
		judged = byContext[0]
	}
	if judged <= 0 {
		t.Errorf("the context of a holder ended %v after the grant to another client", -judged)
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
// as soon as it can, and mends the network.
func (p *partition) cut(name string) (margins, error) {
	const ttl = 3 * time.Second // A busy machine must be able to renew in time.
	proxy := faultproxy.Start(p.t, p.server.Addr)
	proxy.Delay(faultproxy.Down, 0, 100*time.Millisecond) // The TTL does not begin when the answer comes.
	holder := connect(p.t, proxy.Addr(), nil)
	lock, err := holder.Acquire(p.t.Context(), name, &holdfast.Options{TTL: ttl})
	if err != nil {
		return margins{}, err
	}
	ended := make(chan time.Time, 1)
	context.AfterFunc(lock.Context(), func() { ended <- time.Now() })
	isCut := time.AfterFunc(rand.N(2*ttl), func() {
		for _, way := range p.ways {
			proxy.Hold(way)
		}
	})
	defer isCut.Stop()

	next := driver.Request{Name: name, Owner: "the next of " + name, Holder: "other", TTL: time.Minute}
	granted, err := p.takeOver(next)
	if err != nil {
		return margins{}, err
	}
	if isCut.Stop() {
		return margins{}, errors.New("another client has the lock of a holder that was not cut off")
	}
	if lock.Err() == nil {
		return margins{}, errors.New("another client has the lock, and its first holder believes in it")
	}
	at := time.UnixMicro(granted.Token) // The token is the server's clock, which is ours as well.
	m := margins{deadline: at.Sub(lock.Deadline())}
	select {
	case end := <-ended:
		m.context = at.Sub(end)
	case <-time.After(bound):
		return margins{}, fmt.Errorf("the context of a lost lock goes on %v later", bound)
	}
	for _, way := range p.ways {
		proxy.Pass(way)
	}
	if err := lock.Release(); !errors.Is(err, holdfast.ErrLost) {
		return margins{}, fmt.Errorf("the release of a lost lock: %w, want ErrLost", err)
	}
	if _, err := holder.TryAcquire(p.t.Context(), name, nil); !errors.Is(err, holdfast.ErrHeld) {
		return margins{}, fmt.Errorf("the former holder, connected again, tries for the lock of its successor: %w, want ErrHeld", err)
	}
	return m, p.undisturbed(next, granted.Token)
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
