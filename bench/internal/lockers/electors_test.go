//go:build unix

package lockers

import (
	"context"
	"testing"
	"time"

	"github.com/holdfast-go/holdfast/internal/servers"
)

// Of two candidates of each elector one leads. When it has left, the other does, with a greater
// token.
func TestElectors(t *testing.T) {
	addrs := servers.EtcdAddrs(servers.StartEtcdCluster(t, 1))
	for _, e := range Electors() {
		t.Run(e.Name, func(t *testing.T) {
			type term struct {
				candidate int
				token     int64
			}
			terms, ended := make(chan term, 10), make(chan error, 2)
			var leave [2]context.CancelFunc
			for i := range leave {
				ctx, cancel := context.WithCancel(t.Context())
				leave[i] = cancel
				go func() {
					ended <- e.Stand(ctx, Options{Servers: addrs, TTL: ttl}, func(ctx context.Context, token int64) {
						terms <- term{i, token}
						<-ctx.Done()
					})
				}()
			}
			first := <-terms
			select {
			case <-terms:
				t.Fatal("two lead")
			case <-time.After(200 * time.Millisecond):
			}
			leave[first.candidate]()
			second := <-terms
			if second.candidate == first.candidate || second.token <= first.token {
				t.Errorf("after %+v leads %+v", first, second)
			}
			leave[second.candidate]()
			for range leave {
				if err := <-ended; err != nil {
					t.Error(err)
				}
			}
		})
	}
}
