package command

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"net/http"
	"os"
	"sync/atomic"
	"syscall"
	"time"
)

// serverMaxConns leaves the rest of the files of the process to its locks.
const serverMaxConns = 500

// startServer serves on an address until stop is called, which waits for answers that are under
// way for as long as its argument says. The contexts of requests descend from ctx.
func (c *cli) startServer(ctx context.Context, address string, handler http.Handler) (listensOn net.Addr, stop func(wait time.Duration), err error) {
	listener, err := net.Listen("tcp", address)
	if err != nil {
		if errors.Is(err, syscall.EADDRINUSE) {
			err = fmt.Errorf("another program listens on %s already", address)
		}
		return nil, nil, &exitError{exitConfig, err, "another address, such as 127.0.0.1:7070"}
	}
	var open atomic.Int64
	server := &http.Server{
		Handler:           handler,
		ReadHeaderTimeout: 5 * time.Second, ReadTimeout: 30 * time.Second, WriteTimeout: 30 * time.Second, IdleTimeout: 2 * time.Minute,
		MaxHeaderBytes: 16 << 10,
		ErrorLog:       slog.NewLogLogger(slog.DiscardHandler, slog.LevelInfo), // of connections that end early
		BaseContext:    func(net.Listener) context.Context { return ctx },
		ConnState: func(conn net.Conn, state http.ConnState) {
			switch state {
			case http.StateNew:
				if open.Add(1) > serverMaxConns {
					_ = conn.Close() // which is its next state
				}
			case http.StateClosed:
				open.Add(-1)
			}
		},
	}
	go func() {
		if err := server.Serve(listener); !errors.Is(err, http.ErrServerClosed) {
			c.notice(os.Stderr, "%s: %w", listener.Addr(), err)
		}
	}()
	return listener.Addr(), func(wait time.Duration) {
		bounded, cancel := context.WithTimeout(context.Background(), wait)
		defer cancel()
		_ = server.Shutdown(bounded)
		_ = server.Close()
	}, nil
}
