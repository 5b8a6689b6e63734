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

// Etcd lists the libraries for a cluster of etcd. With one session for all locks of the process,
// none can end by itself; with a session for each, closed after it, they do as ours.
func Etcd() []Contender {
	return []Contender{
		{Name: "Holdfast, etcd", Waits: true, Open: openEtcd(func(client *clientv3.Client, o Options) (Locker, error) {
			return openHoldfast(etcdstore.New(client, nil), o.TTL, client.Close), nil
		})},
		{Name: "etcd concurrency, one session", Waits: true, Open: openEtcd(func(client *clientv3.Client, o Options) (Locker, error) {
			session, err := concurrency.NewSession(client, sessionTTL(o))
			if err != nil {
				return nil, errors.Join(err, client.Close())
			}
			return funcLocker{func(ctx context.Context, name string) (Held, error) {
				return lockMutex(ctx, session, name)
			}, closeAll(session.Close, client.Close)}, nil
		})},
		{Name: "etcd concurrency, session each", Waits: true, Open: openEtcd(func(client *clientv3.Client, o Options) (Locker, error) {
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
		})},
	}
}

func openEtcd(open func(*clientv3.Client, Options) (Locker, error)) func(Options) (Locker, error) {
	return func(o Options) (Locker, error) {
		client, err := clientv3.New(clientv3.Config{Endpoints: o.Servers, DialTimeout: 5 * time.Second, Logger: zap.NewNop()})
		if err != nil {
			return nil, err
		}
		return open(client, o)
	}
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
