//go:build unix

package s3doctor_test

import (
	"net/http"
	"net/http/httptest"
	"sync/atomic"
	"testing"

	"github.com/johannesboyne/gofakes3"
	"github.com/johannesboyne/gofakes3/backend/s3mem"

	"github.com/holdfast-go/holdfast"
	"github.com/holdfast-go/holdfast/doctor"
	"github.com/holdfast-go/holdfast/internal/servers"
	_ "github.com/holdfast-go/holdfast/s3store/s3doctor"
)

// A server that is well has no warning, and one that ignores conditions, always or from the third
// write on, has a failure.
func TestExamine(t *testing.T) {
	t.Setenv("AWS_ACCESS_KEY_ID", servers.S3User)
	t.Setenv("AWS_SECRET_ACCESS_KEY", servers.S3Password)
	examine := func(honored int64) doctor.Severity {
		backend := s3mem.New()
		if err := backend.CreateBucket(servers.S3Bucket); err != nil {
			t.Fatal(err)
		}
		well := gofakes3.New(backend, gofakes3.WithLogger(gofakes3.DiscardLog())).Server()
		var writes atomic.Int64
		server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			if r.Method == http.MethodPut && writes.Add(1) > honored {
				r.Header.Del("If-Match")
				r.Header.Del("If-None-Match")
			}
			well.ServeHTTP(w, r)
		}))
		defer server.Close()
		client, err := holdfast.Open(t.Context(), "s3://"+servers.S3Bucket+"?endpoint="+server.URL, nil)
		if err != nil {
			t.Fatal(err)
		}
		defer client.Close()
		findings, err := doctor.Examine(t.Context(), client.Store(), nil)
		if honored > 3 && err != nil {
			t.Errorf("%v: %v", findings, err)
		}
		worst := doctor.Severity(0)
		for _, f := range findings {
			if f.Check == "s3.conditions" || honored > 3 {
				worst = max(worst, f.Severity)
			}
		}
		return worst
	}
	for honored, want := range map[int64]doctor.Severity{1 << 40: doctor.Note, 0: doctor.Failure, 3: doctor.Failure} {
		if got := examine(honored); got > want || want == doctor.Failure && got != want {
			t.Errorf("%d writes are as they should be: %v, want %v", honored, got, want)
		}
	}
}
