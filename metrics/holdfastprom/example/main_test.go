//go:build unix

package main

import (
	"context"
	"io"
	"net"
	"net/http"
	"regexp"
	"strconv"
	"strings"
	"testing"

	"github.com/holdfast-go/holdfast/internal/servers"
	"github.com/holdfast-go/holdfast/internal/storetest"
)

// The program runs on a real Redis, and both pages have its numbers.
func TestExample(t *testing.T) {
	redis := servers.StartRedis(t)
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	done := make(chan error, 1)
	go func() { done <- run(ctx, "redis://"+redis.Addr, listener) }()
	page := func(path string) string {
		answer, err := http.Get("http://" + listener.Addr().String() + path)
		if err != nil {
			t.Fatal(err)
		}
		defer answer.Body.Close()
		text, err := io.ReadAll(answer.Body)
		if err != nil || answer.StatusCode != http.StatusOK {
			t.Fatalf("%s: %v, %v", path, answer.Status, err)
		}
		return string(text)
	}
	count := regexp.MustCompile(`holdfast_acquire_duration_seconds_count\{group="orders",outcome="acquired",store="redis"\} (\d+)`)
	storetest.Eventually(t, "orders have been charged", func() bool {
		match := count.FindStringSubmatch(page("/metrics"))
		return match != nil && len(match[1]) > 1
	})
	numbers := page("/")
	match := regexp.MustCompile(`orders acquired redis +(\d+) +0\.\d+ on average`).FindStringSubmatch(numbers)
	if n := 0; match == nil {
		t.Errorf("the page of numbers:\n%s", numbers)
	} else if n, _ = strconv.Atoi(match[1]); n < 10 || !strings.Contains(numbers, "Locks that are held.") {
		t.Errorf("%d orders; the page of numbers:\n%s", n, numbers)
	}
	cancel()
	if err := <-done; err != nil {
		t.Error(err)
	}
}
