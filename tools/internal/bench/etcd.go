//go:build unix

package bench

import (
	"context"
	"errors"
	"time"

	clientv3 "go.etcd.io/etcd/client/v3"
	"go.etcd.io/etcd/client/v3/concurrency"
	"go.uber.org/zap"

	"github.com/holdfast-go/holdfast/etcdstore"
)

// Etcd lists the libraries for a cluster of etcd.
func Etcd() []Contender {
	return []Contender{
		{
			Name: "Holdfast, etcd", Waits: true, Settings: "etcdstore on clientv3, all defaults",
			Open: func(o Options) (Locker, error) {
				client, err := newEtcd(o)
				if err != nil {
					return nil, err
				}
				return openHoldfast(etcdstore.New(client, nil), o.TTL, client.Close), nil
			},
		},
		{
			Name: "etcd concurrency, one session", Waits: true,
			Settings: "concurrency.Mutex; all locks of the process have one session, so none can end by itself",
			Open: func(o Options) (Locker, error) {
				client, err := newEtcd(o)
				if err != nil {
					return nil, err
				}
				session, err := concurrency.NewSession(client, sessionTTL(o))
				if err != nil {
					return nil, errors.Join(err, client.Close())
				}
				return funcLocker{func(ctx context.Context, name string) (Held, error) {
					return lockMutex(ctx, session, name)
				}, closeAll(session.Close, client.Close)}, nil
			},
		},
		{
			Name: "etcd concurrency, session each", Waits: true,
			Settings: "concurrency.Mutex; a session for each lock, closed after it: each lock ends by itself, as ours do",
			Open: func(o Options) (Locker, error) {
				client, err := newEtcd(o)
				if err != nil {
					return nil, err
				}
				return funcLocker{func(ctx context.Context, name string) (Held, error) {
					session, err := concurrency.NewSession(client, sessionTTL(o))
					if err != nil {
						return nil, err
					}
					held, err := lockMutex(ctx, session, name)
					if err != nil {
						return nil, errors.Join(err, session.Close())
					}
					return releaseFunc(func(ctx context.Context) error {
						return errors.Join(held.Release(ctx), session.Close())
					}), nil
				}, client.Close}, nil
			},
		},
	}
}

func newEtcd(o Options) (*clientv3.Client, error) {
	return clientv3.New(clientv3.Config{Endpoints: o.Servers, DialTimeout: 5 * time.Second, Logger: zap.NewNop()})
}

func sessionTTL(o Options) concurrency.SessionOption {
	return concurrency.WithTTL(int(o.TTL / time.Second))
}

func lockMutex(ctx context.Context, session *concurrency.Session, name string) (Held, error) {
	mutex := concurrency.NewMutex(session, "mutex/"+name)
	if err := mutex.Lock(ctx); err != nil {
		return nil, err
	}
	return releaseFunc(mutex.Unlock), nil
}
