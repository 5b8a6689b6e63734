package election_test

import (
	"context"
	"fmt"

	"github.com/holdfast-go/holdfast"
	"github.com/holdfast-go/holdfast/election"
	"github.com/holdfast-go/holdfast/memstore"
)

func Example() {
	locks := holdfast.New(memstore.New(), &holdfast.Config{Holder: "replica-1"})
	defer locks.Close()

	e := election.New(locks, "scheduler", nil)
	err := e.Run(context.Background(), func(ctx context.Context, term election.Term) error {
		fmt.Println(term.Leader, "leads:", ctx.Err() == nil && term.Token > 0)
		return nil // the work is done; most leaders go on until ctx ends
	})
	fmt.Println(err)
	// Output:
	// replica-1 leads: true
	// <nil>
}

// Any process that can reach the store can observe the leader.
func ExampleElection_Observe() {
	ctx := context.Background()
	locks := holdfast.New(memstore.New(), &holdfast.Config{Holder: "replica-1"})
	defer locks.Close()

	lead := func(ctx context.Context, _ election.Term) error {
		<-ctx.Done()
		return ctx.Err()
	}
	e := election.New(locks, "scheduler", &election.Options{Metadata: map[string]string{"addr": "10.0.0.7:80"}})
	go e.Run(ctx, lead)

	for term, err := range e.Observe(ctx) {
		if err == nil && term.Token > 0 {
			fmt.Println(term.Leader, "is at", term.Metadata["addr"])
			break
		}
	}
	// Output: replica-1 is at 10.0.0.7:80
}

// A leader that is about to shut down hands over at once, not after the TTL.
func ExampleElection_Resign() {
	ctx, cancel := context.WithCancel(context.Background())
	defer cancel()
	locks := holdfast.New(memstore.New(), nil)
	defer locks.Close()

	elected := make(chan bool, 1)
	e := election.New(locks, "scheduler", nil)
	go e.Run(ctx, func(ctx context.Context, _ election.Term) error {
		elected <- true
		<-ctx.Done()
		return nil
	})
	<-elected
	fmt.Println(e.Resign(ctx))
	_, err := e.Leader(ctx)
	fmt.Println(err)
	// Output:
	// <nil>
	// election: no leader
}
