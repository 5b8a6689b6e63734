//go:build unix

package lockers

import (
	"context"
	"time"

	clientv3 "go.etcd.io/etcd/client/v3"
	"go.etcd.io/etcd/client/v3/concurrency"

	"github.com/holdfast-go/holdfast"
	"github.com/holdfast-go/holdfast/election"
	"github.com/holdfast-go/holdfast/etcdstore"
)

// An Elector is one way to elect a leader. Its Open is nil.
type Elector struct {
	Contender

	// Stand is a candidate until ctx ends. It calls lead for each of its terms, with the context of
	// the term and its fencing token.
	Stand func(ctx context.Context, o Options, lead func(term context.Context, token int64)) error
}

// Electors lists those on etcd. They have the same client.
func Electors() []Elector {
	return []Elector{
		{
			Contender{Name: "Holdfast, election", Role: Ours, Settings: "package election on etcdstore; the context and the token of the term"},
			standHoldfast,
		},
		{
			Contender{
				Name: "etcd concurrency.Election", Role: Rival,
				Settings: "the context of a term is that of its Session, which ends a Campaign, too; the token is the revision. A candidate " +
					"whose session has ended has a new one",
			},
			standConcurrency,
		},
	}
}

func standHoldfast(ctx context.Context, o Options, lead func(term context.Context, token int64)) error {
	client, err := newEtcd(o)
	if err != nil {
		return err
	}
	defer client.Close()
	store := etcdstore.New(client, nil)
	defer store.Close()
	locks := holdfast.New(store, nil)
	defer locks.Close()
	e := election.New(locks, "office", &election.Options{TTL: o.TTL})
	err = e.Run(ctx, func(ctx context.Context, term election.Term) error {
		lead(ctx, term.Token)
		return ctx.Err()
	})
	if ctx.Err() != nil {
		return nil
	}
	return err
}

func standConcurrency(ctx context.Context, o Options, lead func(term context.Context, token int64)) error {
	client, err := newEtcd(o)
	if err != nil {
		return err
	}
	defer client.Close()
	for ctx.Err() == nil {
		if standSession(ctx, client, o, lead) == nil {
			continue
		}
		select { // The cluster does not answer.
		case <-ctx.Done():
		case <-time.After(100 * time.Millisecond):
		}
	}
	return nil
}

// standSession is a candidate until a session ends, or cannot begin.
func standSession(ctx context.Context, client *clientv3.Client, o Options, lead func(context.Context, int64)) error {
	session, err := concurrency.NewSession(client, sessionTTL(o))
	if err != nil {
		return err
	}
	stop := context.AfterFunc(ctx, session.Orphan)
	defer stop()
	e := concurrency.NewElection(session, "office")
	if err := e.Campaign(session.Ctx(), "candidate"); err == nil && session.Ctx().Err() == nil {
		lead(session.Ctx(), e.Rev())
	}
	_ = session.Close() // The lease may have ended.
	return nil
}
