// Package httplock is middleware for package net/http that serves requests with
// the same key one at a time, over all replicas of a service, on any store of
// package holdfast.
//
//	mux.Handle("POST /invoices/{id}", httplock.New(locks, key, nil)(handler))
//
// A request whose key is taken is answered 409 Conflict, with Retry-After, or
// waits for its turn (Options.Wait). The context of the request that is served
// ends when its lock is lost; [holdfast.FromContext] gives the lock, for its fencing token.
//
// # What it does not do
//
// It keeps requests apart in time. A request that is sent again after the first
// has been answered is served again: to do something once, keep its outcome
// under the key in your database, or use package once inside the handler.
//
// A handler that goes on after its context has ended is not stopped. What it
// has written by then may have reached the client.
package httplock
