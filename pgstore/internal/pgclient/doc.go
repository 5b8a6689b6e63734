// Package pgclient has what the two stores in PostgreSQL share: pools of connections from URLs,
// errors and statements of the server, and the connection that listens for releases.
package pgclient
