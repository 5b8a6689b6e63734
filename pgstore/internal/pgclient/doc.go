// Package pgclient has what the two stores in PostgreSQL share: pools of connections from URLs,
// errors and statements of the server, and the times of a connection that listens.
package pgclient
