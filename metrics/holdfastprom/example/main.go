// Example charges orders under locks on Redis, and shows the numbers of the locks: all of them for
// Prometheus at /metrics, and the most important ones at /.
//
//	REDIS_URL=redis://localhost:6379 go run ./example
package main

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"log"
	"math/rand/v2"
	"net"
	"net/http"
	"os"
	"os/signal"
	"sync"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/promhttp"

	"github.com/holdfast-go/holdfast"
	"github.com/holdfast-go/holdfast/metrics"
	"github.com/holdfast-go/holdfast/metrics/holdfastprom"
	_ "github.com/holdfast-go/holdfast/redisstore"
)

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt)
	defer stop()
	listener, err := net.Listen("tcp", "localhost:8080")
	if err != nil {
		log.Fatal(err)
	}
	log.Printf("see http://%v and http://%[1]v/metrics", listener.Addr())
	if err := run(ctx, cmp.Or(os.Getenv("REDIS_URL"), "redis://localhost:6379"), listener); err != nil {
		log.Fatal(err)
	}
}

// run serves the numbers and charges orders until ctx ends.
func run(ctx context.Context, store string, listener net.Listener) error {
	collector := holdfastprom.New(&holdfastprom.Options{Group: metrics.FirstSegment})
	registry := prometheus.NewRegistry()
	registry.MustRegister(collector)

	locks, err := holdfast.Open(ctx, store, &holdfast.Config{Hooks: collector.Hooks()})
	if err != nil {
		return err
	}
	defer locks.Close()

	mux := http.NewServeMux()
	mux.Handle("GET /metrics", promhttp.HandlerFor(registry, promhttp.HandlerOpts{EnableOpenMetrics: true}))
	mux.HandleFunc("GET /{$}", func(w http.ResponseWriter, _ *http.Request) { writeNumbers(w, registry) })
	server := &http.Server{Handler: mux, ReadHeaderTimeout: 10 * time.Second}

	var group sync.WaitGroup
	for range 4 {
		group.Go(func() { chargeOrders(ctx, locks) })
	}
	context.AfterFunc(ctx, func() { server.Close() })
	err = server.Serve(listener)
	group.Wait()
	if errors.Is(err, http.ErrServerClosed) {
		return nil
	}
	return err
}

// chargeOrders charges one order after the other, each under its lock.
func chargeOrders(ctx context.Context, locks *holdfast.Client) {
	for ctx.Err() == nil {
		name := fmt.Sprint("orders/", rand.IntN(3))
		err := locks.Do(ctx, name, &holdfast.Options{TTL: 10 * time.Second}, func(context.Context) error {
			time.Sleep(rand.N(20 * time.Millisecond))
			return nil
		})
		if err != nil && ctx.Err() == nil {
			log.Print(err)
		}
	}
}

// writeNumbers writes the values of the metrics, of a histogram how many there were and how long
// they took on average.
func writeNumbers(w http.ResponseWriter, registry *prometheus.Registry) {
	families, err := registry.Gather()
	if err != nil {
		http.Error(w, err.Error(), http.StatusInternalServerError)
		return
	}
	for _, family := range families {
		fmt.Fprintln(w, family.GetHelp())
		for _, m := range family.Metric {
			text := ""
			for _, label := range m.Label {
				text += label.GetValue() + " "
			}
			fmt.Fprintf(w, "    %-28s", text)
			switch h := m.Histogram; {
			case h.GetSampleCount() > 0:
				fmt.Fprintf(w, "%8d   %8.4f on average\n", h.GetSampleCount(), h.GetSampleSum()/float64(h.GetSampleCount()))
			default:
				fmt.Fprintf(w, "%8.0f\n", m.GetGauge().GetValue()+m.GetCounter().GetValue())
			}
		}
	}
}
