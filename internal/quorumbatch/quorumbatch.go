// Package quorumbatch lets the stores of this module take the requests of a quorum in batches.
//
// A quorum makes a request to each of its nodes for each acquisition and release. With a goroutine
// for each of them, waking these goroutines costs more than the requests.
package quorumbatch

import (
	"context"

	"github.com/holdfast-go/holdfast/driver"
)

// A Request is an acquisition or a release at one node, with its result.
type Request struct {
	Acquire *driver.AcquireRequest // nil for a release
	Release driver.ReleaseRequest

	// The results. They are valid once the request has ended.
	Acquired driver.AcquireResult
	Released bool
	Err      error
}

// SendBatch makes requests of different owners or names, in any order. It returns when all have
// ended, by the deadline of ctx as the methods of a [driver.Store] do. An error belongs to one
// request.
type SendBatch func(ctx context.Context, reqs []*Request)

var batches []func(driver.Store) SendBatch

// Register makes the batches of one type of store known. of returns nil for a store of another
// type. That includes a type that embeds the store, whose methods a batch would bypass. Register is
// for use in an init function.
func Register(of func(driver.Store) SendBatch) { batches = append(batches, of) }

// Of returns the batches of a store, or nil if it has none.
func Of(store driver.Store) SendBatch {
	for _, of := range batches {
		if send := of(store); send != nil {
			return send
		}
	}
	return nil
}

// Send makes the request alone.
func (r *Request) Send(ctx context.Context, store driver.Store) {
	if r.Acquire != nil {
		r.Acquired, r.Err = store.Acquire(ctx, *r.Acquire)
	} else {
		r.Released, r.Err = store.Release(ctx, r.Release)
	}
}
