package holdfastprom_test

import (
	"log"
	"net/http"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/promhttp"

	"github.com/holdfast-go/holdfast"
	"github.com/holdfast-go/holdfast/memstore"
	"github.com/holdfast-go/holdfast/metrics"
	"github.com/holdfast-go/holdfast/metrics/holdfastprom"
)

func Example() {
	store := memstore.New()

	collector := holdfastprom.New(&holdfastprom.Options{Group: metrics.FirstSegment})
	prometheus.MustRegister(collector)
	locks := holdfast.New(store, &holdfast.Config{Hooks: collector.Hooks()})
	defer locks.Close()
	http.Handle("GET /metrics", promhttp.Handler())
	log.Print(http.ListenAndServe("localhost:9090", nil))
}
