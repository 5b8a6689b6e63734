package holdfastotel_test

import (
	"log"

	"github.com/holdfast-go/holdfast"
	"github.com/holdfast-go/holdfast/memstore"
	"github.com/holdfast-go/holdfast/metrics/holdfastotel"
)

func ExampleHooks() {
	store := memstore.New()

	hooks, err := holdfastotel.Hooks(nil) // metrics and traces, by the global providers
	if err != nil {
		log.Fatal(err)
	}
	locks := holdfast.New(store, &holdfast.Config{Hooks: hooks})
	defer locks.Close()
}
