//go:build unix

package contend

import (
	"context"
	"errors"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/holdfast-go/holdfast"
	"github.com/holdfast-go/holdfast/driver"
	"github.com/holdfast-go/holdfast/quorumstore"
	"github.com/holdfast-go/holdfast/redisstore"
)

func holdfastRedis() Kind {
	return Kind{
		Name: "Holdfast", Role: Ours, Renews: true, Keys: keyOf(redisstore.DefaultPrefix),
		Settings: "redisstore on go-redis, all defaults; renewal and fencing tokens are always on",
		Open: func(o Options) (Contender, error) {
			client := newRedis(o.Servers[0])
			return newHoldfast(redisstore.New(client, nil), o.TTL, client.Close), nil
		},
	}
}

// holdfastPatient is Holdfast for callers who do not ask to be cancelled, as those
// of the plain commands cannot be: go-redis does not look at a context while it
// waits for an answer.
func holdfastPatient() Kind {
	k := holdfastRedis()
	k.Patient = true
	k.Name, k.Settings = "Holdfast, not cancelled", "the same, asked with a context that cannot be cancelled, which the plain commands do not obey either"
	open := k.Open
	k.Open = func(o Options) (Contender, error) {
		c, err := open(o)
		if err != nil {
			return nil, err
		}
		return patient{c.(*ours)}, nil
	}
	return k
}

type patient struct{ *ours }

func (c patient) Acquire(ctx context.Context, name string) (Held, error) {
	return c.ours.Acquire(context.WithoutCancel(ctx), name)
}

func holdfastQuorum() Kind {
	return Kind{
		Name: "Holdfast, quorum", Role: Ours, Renews: true,
		Settings: "quorumstore over five redisstores, all defaults",
		Open: func(o Options) (Contender, error) {
			var clients []*redis.Client
			var nodes []driver.Store
			for _, addr := range o.Servers {
				client := newRedis(addr)
				clients = append(clients, client)
				nodes = append(nodes, redisstore.New(client, nil))
			}
			store := quorumstore.NewWith(nodes, &quorumstore.Options{CloseStores: true})
			return newHoldfast(store, o.TTL, func() error { return closeAll(clients) }), nil
		},
	}
}

func closeAll(clients []*redis.Client) error {
	var errs []error
	for _, client := range clients {
		errs = append(errs, client.Close())
	}
	return errors.Join(errs...)
}

// ours is Holdfast on any store.
type ours struct {
	*holdfast.Client
	store driver.Store
	after func() error // closes what the store was made of
}

func newHoldfast(store driver.Store, ttl time.Duration, after func() error) *ours {
	config := &holdfast.Config{Options: holdfast.Options{TTL: ttl}}
	return &ours{Client: holdfast.New(store, config), store: store, after: after}
}

func (c *ours) Acquire(ctx context.Context, name string) (Held, error) {
	lock, err := c.Client.Acquire(ctx, name, nil)
	if err != nil {
		return nil, err
	}
	return oursHeld{lock}, nil
}

func (c *ours) Close() error {
	return errors.Join(c.Client.Close(), c.store.Close(), c.after())
}

type oursHeld struct{ *holdfast.Lock }

func (h oursHeld) Release(context.Context) error { return h.Lock.Release() }
