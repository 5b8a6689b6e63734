package holdfast_test

import (
	"context"
	"strings"
	"testing"

	"github.com/holdfast-go/holdfast"
	_ "github.com/holdfast-go/holdfast/memstore"
)

func TestOpen(t *testing.T) {
	ctx := context.Background()
	a, err := holdfast.Open(ctx, "memory://shared", nil)
	if err != nil {
		t.Fatal(err)
	}
	b, err := holdfast.Open(ctx, "memory://shared", nil)
	if err != nil {
		t.Fatal(err)
	}
	lock := acquire(t, a, "a", nil)
	_, err = b.TryAcquire(ctx, "a", nil)
	wantErr(t, err, holdfast.ErrHeld)
	release(t, lock)
	for _, c := range []*holdfast.Client{a, b} {
		if err := c.Close(); err != nil {
			t.Error(err)
		}
		if _, err := c.Store().Lookup(ctx, "a"); err == nil {
			t.Error("Close left the store open that Open had made")
		}
	}
}

func TestOpenRefuses(t *testing.T) {
	for what, url := range map[string]string{
		"unknown scheme":    "carrier-pigeon://user:secret@loft",
		"no scheme":         "secret",
		"malformed":         "memory://user:secret@[",
		"control character": "memory://\x7fsecret",
		"unknown parameter": "memory:?secret=1",
		"path":              "memory:///secret",
	} {
		c, err := holdfast.Open(context.Background(), url, nil)
		wantErr(t, err, holdfast.ErrInvalid)
		if c != nil || strings.Contains(err.Error(), ":secret") {
			t.Errorf("%s: %v, %v", what, c, err)
		}
	}
	if _, err := holdfast.Open(context.Background(), "memory:", &holdfast.Config{Holder: "\n"}); err == nil {
		t.Error("an invalid Config is accepted")
	}
}

// Two Clients of one URL exclude each other, with memory: as with every other store.
func TestOpenOfOneURLIsOneStore(t *testing.T) {
	ctx := context.Background()
	var clients []*holdfast.Client
	for range 2 {
		c, err := holdfast.Open(ctx, "memory:", nil)
		if err != nil {
			t.Fatal(err)
		}
		defer c.Close()
		clients = append(clients, c)
	}
	lock := acquire(t, clients[0], "TestOpenOfOneURLIsOneStore", nil)
	_, err := clients[1].TryAcquire(ctx, lock.Name(), nil)
	wantErr(t, err, holdfast.ErrHeld)
	release(t, lock)
}
