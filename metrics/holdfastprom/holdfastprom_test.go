package holdfastprom_test

import (
	"context"
	"encoding/json"
	"errors"
	"maps"
	"net/http"
	"net/http/httptest"
	"os"
	"os/exec"
	"regexp"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/testutil"

	"github.com/holdfast-go/holdfast"
	"github.com/holdfast-go/holdfast/election"
	"github.com/holdfast-go/holdfast/internal/faultstore"
	"github.com/holdfast-go/holdfast/lockui"
	"github.com/holdfast-go/holdfast/memstore"
	"github.com/holdfast-go/holdfast/metrics"
	"github.com/holdfast-go/holdfast/metrics/holdfastprom"
)

// counts returns the value of each series that is not 0, of a histogram the number of its
// observations, and the counters and histograms that are 0.
func counts(t *testing.T, registry *prometheus.Registry) (values map[string]float64, zero []string) {
	t.Helper()
	families, err := registry.Gather()
	if err != nil {
		t.Fatal(err)
	}
	values = map[string]float64{}
	for _, family := range families {
		for _, m := range family.Metric {
			name := strings.TrimPrefix(family.GetName(), "holdfast_")
			for _, label := range m.Label {
				name += " " + label.GetValue()
			}
			value := m.GetGauge().GetValue() + m.GetCounter().GetValue() + float64(m.GetHistogram().GetSampleCount())
			if value != 0 {
				values[name] = value
			} else if m.GetGauge() == nil {
				zero = append(zero, name)
			}
		}
	}
	return values, zero
}

func register(t *testing.T, o *holdfastprom.Options) (*holdfastprom.Collector, *prometheus.Registry) {
	t.Helper()
	collector := holdfastprom.New(o)
	registry := prometheus.NewPedanticRegistry()
	registry.MustRegister(collector)
	return collector, registry
}

// Each metric counts what it is named after, by group, and no label has the name of a lock. The
// gauges return to 0; that of an election begins with it. The series of rare outcomes begin at 0, before the first of them: Prometheus
// has no rate of a series whose first value is 1.
func TestCollector(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		ctx := t.Context()
		collector, registry := register(t, &holdfastprom.Options{Group: metrics.FirstSegment})
		store := faultstore.Wrap(memstore.New())
		config := &holdfast.Config{Hooks: collector.Hooks(), LocalTurn: -1}
		locks, other := holdfast.New(store, config), holdfast.New(store.Store, nil)
		defer other.Close()
		office := election.New(other, "office", nil)
		collector.AddElection(office)
		if n := testutil.CollectAndCount(collector, "holdfast_leader"); n != 1 {
			t.Errorf("%d series before the election", n)
		}

		if _, err := locks.TryAcquire(ctx, "a/1", nil); err != nil {
			t.Fatal(err)
		}
		if _, got := counts(t, registry); !slices.Equal(got, []string{
			"acquire_duration_seconds a error memory", "acquire_duration_seconds a held memory", "acquire_duration_seconds a timeout memory",
			"hold_duration_seconds expired a memory", "hold_duration_seconds max_hold a memory",
			"hold_duration_seconds released a memory", "hold_duration_seconds taken a memory",
			"renewals_total in_doubt memory", "renewals_total lost memory", "renewals_total renewed memory",
		}) {
			t.Errorf("series at 0: %q", got)
		}
		if _, err := locks.TryAcquire(ctx, "a/1", nil); !errors.Is(err, holdfast.ErrHeld) {
			t.Error(err)
		}
		foreign, err := other.Acquire(ctx, "b/1", nil)
		if err != nil {
			t.Fatal(err)
		}
		var group sync.WaitGroup
		term, resign := context.WithCancel(ctx)
		group.Go(func() {
			_ = office.Run(term, func(ctx context.Context, _ election.Term) error {
				<-ctx.Done()
				return nil
			})
		})
		group.Go(func() {
			_, err := locks.Acquire(ctx, "b/1", &holdfast.Options{Wait: time.Second})
			if !errors.Is(err, holdfast.ErrHeld) {
				t.Error(err)
			}
		})
		synctest.Wait()
		got, _ := counts(t, registry)
		if want := (map[string]float64{
			"acquire_duration_seconds a acquired memory": 1,
			"acquire_duration_seconds a held memory":     1,
			"holds a memory":                             1,
			"leader office":                              1,
			"waiters b memory":                           1,
			"request_duration_seconds acquire ok memory": 2,
		}); !maps.Equal(got, want) {
			t.Errorf("during a wait %v, want %v", got, want)
		}
		resign()
		group.Wait()
		if err := foreign.Release(); err != nil {
			t.Error(err)
		}
		time.Sleep(10 * time.Second) // a renewal
		store.Once(faultstore.Renew, faultstore.Refuse)
		time.Sleep(12 * time.Second) // two more, and one that is refused
		if _, err := other.Break(ctx, "a/1", 0); err != nil {
			t.Error(err)
		}
		time.Sleep(10 * time.Second)
		if err := locks.Close(); err != nil {
			t.Error(err)
		}
		got, _ = counts(t, registry)
		for _, op := range []string{"renew", "release"} { // of holds and places
			name := "request_duration_seconds " + op + " ok memory"
			if got[name] == 0 {
				t.Errorf("no %s", name)
			}
			delete(got, name)
		}
		if want := (map[string]float64{
			"acquire_duration_seconds a acquired memory":  1,
			"acquire_duration_seconds a held memory":      1,
			"acquire_duration_seconds b timeout memory":   1,
			"hold_duration_seconds taken a memory":        1,
			"renewal_margin_ratio memory":                 2,
			"renewals_total renewed memory":               2,
			"renewals_total in_doubt memory":              1,
			"renewals_total lost memory":                  1,
			"request_duration_seconds acquire ok memory":  2,
			"request_duration_seconds renew error memory": 1,
		}); !maps.Equal(got, want) {
			t.Errorf("after Close %v, want %v", got, want)
		}
	})
}

// registered returns the names that a Collector describes, and those of the parts of histograms.
func registered() []string {
	descriptions := make(chan *prometheus.Desc, 100)
	holdfastprom.New(nil).Describe(descriptions)
	close(descriptions)
	var names []string
	for description := range descriptions {
		name := regexp.MustCompile(`fqName: "([a-z_]+)"`).FindStringSubmatch(description.String())[1]
		names = append(names, name)
		if strings.HasSuffix(name, "_seconds") || strings.HasSuffix(name, "_ratio") {
			names = append(names, name+"_bucket", name+"_sum", name+"_count")
		}
	}
	return names
}

// ofPage returns the names of the metrics of "holdfast ui --metrics".
func ofPage(t *testing.T) (names []string) {
	t.Helper()
	client := holdfast.New(memstore.New(), nil)
	t.Cleanup(func() { _ = client.Close() })
	page, err := lockui.Handler(lockui.Options{Stores: []lockui.Store{{Client: client}}, BehindProxy: true, Metrics: true})
	if err != nil {
		t.Fatal(err)
	}
	answer := httptest.NewRecorder()
	page.ServeHTTP(answer, httptest.NewRequestWithContext(t.Context(), http.MethodGet, "http://127.0.0.1/metrics", nil))
	for _, words := range regexp.MustCompile(`(?m)^# TYPE (\w+) `).FindAllStringSubmatch(answer.Body.String(), -1) {
		names = append(names, words[1])
	}
	if answer.Code != http.StatusOK || len(names) < 5 {
		t.Errorf("the page has the metrics %q: %d %s", names, answer.Code, answer.Body)
	}
	return names
}

// Every metric of the dashboard, the alerts and the documentation of the package is one of a
// Collector or of the page.
func TestFilesNameMetricsThatExist(t *testing.T) {
	names := append(registered(), ofPage(t)...)
	for _, file := range []string{"../grafana.json", "../alerts.yaml", "../alerts_test.yaml", "holdfastprom.go"} {
		text, err := os.ReadFile(file)
		if err != nil {
			t.Fatal(err)
		}
		used := regexp.MustCompile(`\bholdfast_[a-z_]+`).FindAllString(string(text), -1)
		if len(used) < 8 {
			t.Errorf("%s names %d metrics", file, len(used))
		}
		for _, name := range used {
			if !slices.Contains(names, name) {
				t.Errorf("%s names %s, which is not registered", file, name)
			}
		}
	}
}

// dashboardVariables replaces the variables of the dashboard by all jobs, stores and groups.
var dashboardVariables = strings.NewReplacer("$__rate_interval", "5m", `"$job"`, `".*"`, `"$store"`, `".*"`, `"$group"`, `".*"`)

// The queries of the dashboard are those of PromQL, and the description of each panel has what a
// gap means.
func TestDashboard(t *testing.T) {
	var dashboard struct {
		Panels []struct {
			Type, Title, Description string
			Targets                  []struct{ Expr string }
		}
	}
	text, err := os.ReadFile("../grafana.json")
	if err == nil {
		err = json.Unmarshal(text, &dashboard)
	}
	if err != nil {
		t.Fatal(err)
	}
	panels := 0
	var rules []any // The queries are those of PromQL if rules can consist of them.
	for _, panel := range dashboard.Panels {
		if panel.Type == "row" {
			continue
		}
		panels++
		if !strings.Contains(panel.Description, "gap") {
			t.Errorf("panel %q does not describe a gap: %q", panel.Title, panel.Description)
		}
		for _, target := range panel.Targets {
			rules = append(rules, map[string]string{"record": "holdfast:one", "expr": dashboardVariables.Replace(target.Expr)})
		}
	}
	if panels < 10 {
		t.Errorf("%d panels", panels)
	}
	group, err := json.Marshal(map[string]any{"groups": []any{map[string]any{"name": "panels", "rules": rules}}})
	if err != nil {
		t.Fatal(err)
	}
	file := t.TempDir() + "/rules.yaml"
	if err := os.WriteFile(file, group, 0o666); err != nil {
		t.Fatal(err)
	}
	promtool(t, "check", "rules", file)
}

// The alerts fire when they should, and only then.
func TestAlerts(t *testing.T) {
	promtool(t, "check", "rules", "../alerts.yaml")
	promtool(t, "test", "rules", "../alerts_test.yaml")
	alerts, err := os.ReadFile("../alerts.yaml")
	if err != nil {
		t.Fatal(err)
	}
	tests, err := os.ReadFile("../alerts_test.yaml")
	if err != nil {
		t.Fatal(err)
	}
	for _, alert := range regexp.MustCompile(`alert: (\w+)`).FindAllStringSubmatch(string(alerts), -1) {
		well, ill, _ := strings.Cut(string(tests), "name: ill")
		if !strings.Contains(well, alert[1]+"}") || !strings.Contains(ill, alert[1]+"\n        exp_alerts:") {
			t.Errorf("%s has no test", alert[1])
		}
	}
}

// promtool runs a program of Debian's package prometheus; scripts/needs installs it.
func promtool(t *testing.T, args ...string) {
	t.Helper()
	if out, err := exec.CommandContext(t.Context(), "promtool", args...).CombinedOutput(); err != nil {
		t.Errorf("promtool %s: %v\n%s", strings.Join(args, " "), err, out)
	}
}
