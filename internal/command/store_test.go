package command

import (
	"context"
	"testing"

	"github.com/holdfast-go/holdfast"
)

// newStore returns the URL of a new store and a client of it.
func newStore(t *testing.T) (string, *holdfast.Client) {
	t.Helper()
	url := "file:" + t.TempDir()
	client, err := holdfast.Open(context.Background(), url, &holdfast.Config{Holder: "the-test"})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = client.Close() })
	return url, client
}

func holdLock(t *testing.T, client *holdfast.Client, name string) *holdfast.Lock {
	t.Helper()
	lock, err := client.TryAcquire(context.Background(), name, nil)
	if err != nil {
		t.Fatal(err)
	}
	return lock
}
