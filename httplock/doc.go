// Package httplock is middleware for package net/http that serves requests with the same key one at
// a time, over all replicas of a service, on any store of package holdfast.
//
//	mux.Handle("POST /invoices/{id}", httplock.Middleware(locks, key, nil)(handler))
//
// If the key of a request is taken, the response is 409 Conflict, with Retry-After, or the request
// waits (Options.Wait). If the key cannot be the name of a lock, the response is 400 Bad Request.
// The context of a request that is served ends when its lock is lost. [holdfast.FromContext]
// returns the lock, for its fencing token.
//
// Of the options in the Client's Config only TTL and Metadata apply.
//
// # Shutting down
//
// Call http.Server.Shutdown first, which lets the requests in progress finish, and then
// Client.Close. A Close while requests are served ends their contexts and waits for their handlers,
// until the deadlines of their locks. Then Failed is called.
//
// # What it does not do
//
// It only keeps requests apart in time. A request that is sent again after the response to the
// first is served again. To do something once, keep its outcome under the key in your database, or
// use package once inside the handler.
//
// A handler that goes on after its context has ended is not stopped. What it has written by then
// may have reached the HTTP client.
package httplock
