package holdfast_test

import (
	"errors"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/holdfast-go/holdfast"
	"github.com/holdfast-go/holdfast/driver"
	"github.com/holdfast-go/holdfast/memstore"
)

// What a first program gets wrong has an error that names what to write.
func TestFirstMistakes(t *testing.T) {
	t.Parallel()
	for _, url := range []string{"localhost:6379", "cache.example.com:6379", "127.0.0.1:5432", "db:5432/orders", "/srv/my locks/", "mongodb://host", "localhost"} {
		_, err := holdfast.Open(t.Context(), url, nil)
		if !errors.Is(err, holdfast.ErrInvalid) || !strings.Contains(err.Error(), "there are: ") || !strings.Contains(err.Error(), "redis://host:6379") {
			t.Errorf("%s: %v, want what a URL looks like", url, err)
		}
	}
	for _, url := range []string{"user:SecretWord@host:6379", "redis:SecretWord", "//:SecretWord@redis:6379/0", "//user:SecretWord@[::1", "/%zz:SecretWord@host"} {
		if _, err := holdfast.Open(t.Context(), url, nil); err == nil || strings.Contains(err.Error(), "SecretWord") {
			t.Errorf("%s: %v", url, err)
		}
	}
	synctest.Test(t, func(t *testing.T) {
		locks := holdfast.New(memstore.New(), nil)
		defer locks.Close()
		lock, err := locks.Acquire(t.Context(), "a", nil)
		if err != nil {
			t.Fatal(err)
		}
		defer lock.Release()
		for what, o := range map[string]*holdfast.Options{"Wait": {Wait: 5}, "TTL": {TTL: 30}, "MaxHold": {MaxHold: 5}} {
			if _, err := locks.Acquire(t.Context(), "a", o); err == nil || !strings.Contains(err.Error(), "a number alone is nanoseconds: write ") || !strings.Contains(err.Error(), "*time.Second") {
				t.Errorf("%s: %v", what, err)
			}
		}
		if _, err := locks.Acquire(t.Context(), "a", &holdfast.Options{Wait: 5 * time.Millisecond}); err == nil || strings.Contains(err.Error(), "nanoseconds") {
			t.Errorf("a short Wait: %v", err)
		}
	})
	if text := (driver.Record{}).String(); text != "no hold" {
		t.Errorf("the zero Record: %s", text)
	}
	if text := (driver.Record{Name: "a"}).String(); text != `"a" held by an unknown holder` {
		t.Errorf("a hold of a foreign client: %s", text)
	}
}
