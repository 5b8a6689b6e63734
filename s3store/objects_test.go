//go:build unix

package s3store

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"net/http"
	"net/http/httptest"
	"os"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/service/s3"
	"github.com/johannesboyne/gofakes3"
	"github.com/johannesboyne/gofakes3/backend/s3mem"

	"github.com/holdfast-go/holdfast/driver"
	"github.com/holdfast-go/holdfast/internal/servers"
)

// startS3 starts the server of TEST_S3_SERVER, or gofakes3 in this process if there is none, and
// returns its host and port.
func startS3(tb testing.TB) string {
	tb.Helper()
	if os.Getenv("TEST_S3_SERVER") != "" {
		return servers.StartS3(tb).Addr
	}
	server := httptest.NewServer(fake(tb))
	tb.Cleanup(server.Close)
	return strings.TrimPrefix(server.URL, "http://")
}

// fake is gofakes3, with an empty bucket.
func fake(tb testing.TB) http.Handler {
	backend := s3mem.New()
	if err := backend.CreateBucket(servers.S3Bucket); err != nil {
		tb.Fatal(err)
	}
	return gofakes3.New(backend, gofakes3.WithLogger(gofakes3.DiscardLog())).Server()
}

// dial returns a client of the server at an address, or at the end of a way.
func dial(addr string, way http.RoundTripper) *s3.Client {
	return s3.New(s3.Options{
		Region: "us-east-1", BaseEndpoint: aws.String("http://" + cmp.Or(addr, "server")), UsePathStyle: true,
		HTTPClient: &http.Client{Transport: way},
		Credentials: aws.CredentialsProviderFunc(func(context.Context) (aws.Credentials, error) {
			return aws.Credentials{AccessKeyID: servers.S3User, SecretAccessKey: servers.S3Password}, nil
		}),
	})
}

func open(tb testing.TB, client *s3.Client, prefix string) *Store {
	tb.Helper()
	s, err := New(client, servers.S3Bucket, &Options{Prefix: prefix})
	if err != nil {
		tb.Fatal(err)
	}
	return s
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
	s := open(t, dial(startS3(t), http.DefaultTransport), "some/prefix/")
	long := strings.Repeat("/", driver.MaxName)
	for _, name := range []string{"name", "name/x", "+ .~%\xff", long, long[1:]} {
		key := s.prefix + encode(name)
		value, tag, err := s.get(t.Context(), key)
		if tag != "" || value != nil || err != nil {
			t.Fatalf("before: %q, %q, %v", value, tag, err)
		}
		if _, err = s.put(t.Context(), key, []byte("early"), `"`+strings.Repeat("1", 32)+`"`); !errors.Is(err, errChanged) {
			t.Errorf("a tag of what is not there: %v", err)
		}
		first, err := s.put(t.Context(), key, []byte("first"), "")
		must(t, err)
		if _, err = s.put(t.Context(), key, []byte("again"), ""); !errors.Is(err, errChanged) {
			t.Errorf("made twice: %v", err)
		}
		second, err := s.put(t.Context(), key, []byte("second"), first)
		must(t, err)
		if _, err = s.put(t.Context(), key, []byte("stale"), first); !errors.Is(err, errChanged) {
			t.Errorf("an old tag: %v", err)
		}
		if value, tag, err = s.get(t.Context(), key); string(value) != "second" || tag != second || first == second || err != nil {
			t.Errorf("after: %q, %q, %v", value, tag, err)
		}
	}
	for prefix, want := range map[string]int{"": 5, "name": 2, "name/": 1, "/": 2, long: 1, "%": 0, "n%61": 0, "+": 1, "+ .~%": 1} {
		n := 0
		for _, err := range s.List(t.Context(), prefix) { // They are no records.
			if n++; !errors.Is(err, driver.ErrCorrupt) || !strings.Contains(err.Error(), strings.Trim(fmt.Sprintf("%q", prefix), `"`)) {
				t.Errorf("listed for %q: %v", prefix, err)
			}
		}
		if n != want {
			t.Errorf("for %q %d are listed, want %d", prefix, n, want)
		}
	}
}

// A listing without a deadline ends, though the server hangs over an object.
func TestListingOfHungServer(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		server := fake(t)
		s := open(t, dial("", inProcess{http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			if r.Method == http.MethodGet && strings.HasSuffix(r.URL.Path, "/name") {
				<-r.Context().Done()
				return
			}
			server.ServeHTTP(w, r)
		})}), "")
		_, err := s.put(t.Context(), s.prefix+"name", nil, "")
		must(t, err)
		for _, err = range s.List(t.Context(), "") {
		}
		if err == nil {
			t.Error("List succeeds")
		}
	})
}

// A server that ignores a condition, or does not know it, is refused at the first write.
func TestUnfit(t *testing.T) {
	t.Parallel()
	write := func(server http.Handler) error {
		_, err := open(t, dial("", inProcess{server}), "").Release(t.Context(), driver.ReleaseRequest{Name: "name", Owner: "o"})
		return err
	}
	for _, header := range []string{"If-None-Match", "If-Match"} {
		server := fake(t)
		err := write(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			r.Header.Del(header)
			server.ServeHTTP(w, r)
		}))
		if !errors.Is(err, errUnfit) || !driver.IsNotApplied(err) {
			t.Errorf("without %s: %v", header, err)
		}
	}
	server := fake(t)
	err := write(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.Method == http.MethodPut {
			server = answer(http.StatusNotImplemented, "NotImplemented")
		}
		server.ServeHTTP(w, r)
	}))
	if !errors.Is(err, driver.ErrUnsupported) {
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
		asked, server := 0, answer(test.status, test.code)
		s := open(t, dial("", inProcess{http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			asked++
			server.ServeHTTP(w, r)
		})}), "")
		_, err := s.put(t.Context(), "key", []byte("x"), `"tag"`)
		var later *driver.RetryError
		if err == nil || errors.Is(err, errChanged) || driver.IsNotApplied(err) != test.notApplied ||
			errors.As(err, &later) != test.later || test.later && later.After != 7*time.Second {
			t.Errorf("PUT, %d %s: %v", test.status, test.code, err)
		}
		if !strings.Contains(err.Error(), fmt.Sprintf("(status %d)", test.status)) || strings.Contains(err.Error(), servers.S3User) {
			t.Errorf("PUT, %d %s: %v", test.status, test.code, err)
		}
		if _, tag, err := s.get(t.Context(), "key"); err == nil || tag != "" {
			t.Errorf("GET, %d %s: %v", test.status, test.code, err)
		}
		for _, err = range s.List(t.Context(), "") {
		}
		if err == nil || asked != 3 {
			t.Errorf("LIST, %d %s: %v; %d requests in all", test.status, test.code, err, asked)
		}
	}
	s := open(t, dial("", inProcess{http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.Method == http.MethodPut {
			w.WriteHeader(http.StatusPreconditionFailed)
		}
	})}), "")
	if _, err := s.put(t.Context(), "key", []byte("x"), `"tag"`); !errors.Is(err, errChanged) {
		t.Errorf("PUT, 412 without a body: %v", err)
	}
	if _, _, err := s.get(t.Context(), "key"); err == nil || driver.Permanent(err) {
		t.Errorf("GET without a tag: %v", err)
	}
	refused := open(t, dial("127.0.0.1:1", http.DefaultTransport), "")
	if _, err := refused.put(t.Context(), "key", nil, ""); !driver.IsNotApplied(err) || driver.Permanent(err) {
		t.Errorf("no server: %v", err)
	}
}
