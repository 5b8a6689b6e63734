//go:build unix

package s3store

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"net/http/httptest"
	"net/url"
	"os"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/service/s3"
	"github.com/johannesboyne/gofakes3"
	"github.com/johannesboyne/gofakes3/backend/s3mem"

	"github.com/holdfast-go/holdfast/driver"
	"github.com/holdfast-go/holdfast/internal/casrecord"
	"github.com/holdfast-go/holdfast/internal/servers"
)

// startS3 starts the server of TEST_S3_SERVER, or gofakes3 in this process if there is none, and
// returns its host and port.
func startS3(tb testing.TB) string {
	tb.Helper()
	if os.Getenv("TEST_S3_SERVER") != "" {
		return servers.StartS3(tb).Addr
	}
	return serve(tb, fake(tb))
}

// fake is gofakes3, with an empty bucket.
func fake(tb testing.TB) http.Handler {
	backend := s3mem.New()
	if err := backend.CreateBucket(servers.S3Bucket); err != nil {
		tb.Fatal(err)
	}
	return gofakes3.New(backend, gofakes3.WithLogger(gofakes3.DiscardLog())).Server()
}

func serve(tb testing.TB, handler http.Handler) string {
	server := httptest.NewServer(handler)
	tb.Cleanup(server.Close)
	return strings.TrimPrefix(server.URL, "http://")
}

// dial returns a client of the server at an address, with connections of its own.
func dial(tb testing.TB, addr string) *s3.Client {
	transport := &http.Transport{}
	tb.Cleanup(transport.CloseIdleConnections)
	return s3.New(s3.Options{
		Region: "us-east-1", BaseEndpoint: aws.String("http://" + addr), UsePathStyle: true, HTTPClient: &http.Client{Transport: transport},
		Credentials: aws.CredentialsProviderFunc(func(context.Context) (aws.Credentials, error) {
			return aws.Credentials{AccessKeyID: servers.S3User, SecretAccessKey: servers.S3Password}, nil
		}),
	})
}

func open(tb testing.TB, addr, prefix string) *Store {
	tb.Helper()
	s, err := New(dial(tb, addr), servers.S3Bucket, &Options{Prefix: prefix})
	if err != nil {
		tb.Fatal(err)
	}
	return s
}

func openText(tb testing.TB, text string) (*Store, error) {
	u, err := url.Parse(text)
	if err != nil {
		tb.Fatal(err)
	}
	s, err := openURL(tb.Context(), u)
	if err != nil {
		return nil, err
	}
	return s.(*Store), nil
}

func must(t *testing.T, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

// A write is done under its condition alone, and what was written is read and listed.
func TestObjects(t *testing.T) {
	t.Parallel()
	o := open(t, startS3(t), "some/prefix/").objects
	long := strings.Repeat("/", driver.MaxName)
	for _, name := range []string{"name", "name/x", long, long[1:]} {
		value, version, err := o.Get(t.Context(), name)
		if version != "" || len(value) > 0 || err != nil {
			t.Fatalf("before: %q, %q, %v", value, version, err)
		}
		if _, err = o.Put(t.Context(), name, []byte("early"), `"`+strings.Repeat("1", 32)+`"`); !errors.Is(err, casrecord.ErrChanged) {
			t.Errorf("a version of what is not there: %v", err)
		}
		first, err := o.Put(t.Context(), name, []byte("first"), "")
		must(t, err)
		if _, err = o.Put(t.Context(), name, []byte("again"), ""); !errors.Is(err, casrecord.ErrChanged) {
			t.Errorf("made twice: %v", err)
		}
		second, err := o.Put(t.Context(), name, []byte("second"), first)
		must(t, err)
		if _, err = o.Put(t.Context(), name, []byte("stale"), first); !errors.Is(err, casrecord.ErrChanged) {
			t.Errorf("an old version: %v", err)
		}
		if value, version, err = o.Get(t.Context(), name); string(value) != "second" || version != second || first == second || err != nil {
			t.Errorf("after: %q, %q, %v", value, version, err)
		}
	}
	for prefix, want := range map[string]int{"": 4, "name": 2, "name/": 1, "/": 2, long: 1, "%": 0, "n%61": 0} {
		n := 0
		for name, err := range o.List(t.Context(), prefix) {
			must(t, err)
			if n++; !strings.HasPrefix(name, prefix) {
				t.Errorf("%q is listed for %q", name, prefix)
			}
		}
		if n != want {
			t.Errorf("for %q %d are listed, want %d", prefix, n, want)
		}
	}
}

// Of many clients that write at once one is granted.
func TestRace(t *testing.T) {
	t.Parallel()
	addr := startS3(t)
	version := ""
	for round := range 20 {
		var won atomic.Int32
		var mu sync.Mutex
		var group sync.WaitGroup
		before := version
		for i := range 8 {
			o := open(t, addr, "").objects
			group.Go(func() {
				got, err := o.Put(t.Context(), "name", fmt.Append(nil, round, i), before)
				if err == nil {
					won.Add(1)
					mu.Lock()
					version = got
					mu.Unlock()
				} else if !errors.Is(err, casrecord.ErrChanged) {
					t.Error(err)
				}
			})
		}
		group.Wait()
		if won.Load() != 1 {
			t.Fatalf("round %d: %d clients have written", round, won.Load())
		}
	}
}

// A listing has several pages.
func TestPages(t *testing.T) {
	t.Parallel()
	addr := startS3(t)
	client := dial(t, addr)
	var group sync.WaitGroup
	for i := range 4 {
		group.Go(func() {
			for k := i; k < 1002; k += 4 {
				_, err := client.PutObject(t.Context(), &s3.PutObjectInput{
					Bucket: aws.String(servers.S3Bucket), Key: aws.String(fmt.Sprintf("%sn%d", DefaultPrefix, k)), Body: strings.NewReader("x"),
				})
				if err != nil {
					t.Error(err)
				}
			}
		})
	}
	group.Wait()
	names := map[string]bool{}
	for name, err := range open(t, addr, "").objects.List(t.Context(), "n") {
		must(t, err)
		names[name] = true
	}
	if len(names) != 1002 {
		t.Errorf("%d names of 1002", len(names))
	}
}

// A server that ignores a condition, or does not know it, is refused at the first write.
func TestUnfit(t *testing.T) {
	t.Parallel()
	for _, header := range []string{"If-None-Match", "If-Match"} {
		server := fake(t)
		addr := serve(t, http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			r.Header.Del(header)
			server.ServeHTTP(w, r)
		}))
		_, err := open(t, addr, "").objects.Put(t.Context(), "name", []byte("x"), "")
		if !errors.Is(err, driver.ErrUnsupported) || !strings.Contains(err.Error(), "ignores If-None-Match and If-Match") {
			t.Errorf("without %s: %v", header, err)
		}
	}
	addr := serve(t, answer(http.StatusNotImplemented, "NotImplemented"))
	if _, err := open(t, addr, "").objects.Put(t.Context(), "name", []byte("x"), ""); !errors.Is(err, driver.ErrUnsupported) {
		t.Errorf("not implemented: %v", err)
	}
}

// answer is a server that answers every request with an error.
func answer(status int, code string) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Retry-After", "7")
		w.WriteHeader(status)
		fmt.Fprintf(w, "<Error><Code>%s</Code><Message>a message</Message></Error>", code)
	})
}

// An error of the server is not known to have changed nothing, unless the server has refused the
// request. It is sent once. A server that is too busy tells when it is not.
func TestErrors(t *testing.T) {
	t.Parallel()
	for _, test := range []struct {
		status            int
		code              string
		notApplied, later bool
	}{
		{503, "SlowDown", true, true},
		{429, "TooManyRequests", true, true},
		{503, "ServiceUnavailable", false, false},
		{500, "InternalError", false, false},
		{502, "", false, false},
		{504, "", false, false},
		{400, "RequestTimeout", false, false},
		{403, "AccessDenied", true, false},
		{404, "NoSuchBucket", true, false},
		{301, "PermanentRedirect", true, false},
	} {
		var asked atomic.Int32
		server := answer(test.status, test.code)
		o := open(t, serve(t, http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			asked.Add(1)
			server.ServeHTTP(w, r)
		})), "").objects
		o.checked.Store(true)
		_, err := o.Put(t.Context(), "name", []byte("x"), `"tag"`)
		var later *driver.RetryError
		if err == nil || errors.Is(err, casrecord.ErrChanged) || driver.IsNotApplied(err) != test.notApplied ||
			errors.As(err, &later) != test.later || test.later && later.After != 7*time.Second {
			t.Errorf("PUT, %d %s: %v", test.status, test.code, err)
		}
		if !strings.Contains(err.Error(), fmt.Sprintf("(status %d)", test.status)) || strings.Contains(err.Error(), servers.S3User) {
			t.Errorf("PUT, %d %s: %v", test.status, test.code, err)
		}
		_, version, err := o.Get(t.Context(), "name")
		if err == nil || version != "" {
			t.Errorf("GET, %d %s: %v", test.status, test.code, err)
		}
		for _, err = range o.List(t.Context(), "") {
		}
		if err == nil || asked.Load() != 3 {
			t.Errorf("LIST, %d %s: %v; %d requests in all", test.status, test.code, err, asked.Load())
		}
	}
	o := open(t, serve(t, http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.Method == http.MethodPut {
			w.WriteHeader(http.StatusPreconditionFailed)
		}
	})), "").objects
	o.checked.Store(true)
	if _, err := o.Put(t.Context(), "name", []byte("x"), `"tag"`); !errors.Is(err, casrecord.ErrChanged) {
		t.Errorf("PUT, 412 without a body: %v", err)
	}
	if _, _, err := o.Get(t.Context(), "name"); err == nil || driver.Permanent(err) {
		t.Errorf("GET without a tag: %v", err)
	}
	refused := open(t, "127.0.0.1:1", "").objects
	if _, err := refused.Put(t.Context(), "name", nil, ""); !driver.IsNotApplied(err) || driver.Permanent(err) {
		t.Errorf("no server: %v", err)
	}
}
