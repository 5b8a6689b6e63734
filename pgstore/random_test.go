//go:build unix

package pgstore

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/holdfast-go/holdfast/driver"
	"github.com/holdfast-go/holdfast/memstore"
)

// Random requests are answered as by package memstore, which runs on package lockqueue.
func TestRandomHistories(t *testing.T) {
	t.Parallel()
	s := open(t)
	for history := range 100 * rounds(1) {
		seed := rand.Uint64()
		model, name := memstore.New(), fmt.Sprint("history ", history)
		tokens := map[driver.Store][]int64{} // by the number of the request
		var lines []string
		for step := range 25 {
			line := ""
			for i, store := range []driver.Store{s, model} {
				again := rand.New(rand.NewPCG(seed, uint64(step))) // the same choices for both
				got := randomStep(t, store, name, again, tokens)
				if i == 0 {
					line = got
				} else if got != line {
					t.Fatalf("history %d, seed %d:\n%s\nthe table: %s\nthe model: %s", history, seed, strings.Join(lines, "\n"), line, got)
				}
			}
			lines = append(lines, line)
		}
		_ = model.Close()
	}
}

// randomStep makes a request, and describes it and its result.
func randomStep(t *testing.T, s driver.Store, name string, random *rand.Rand, tokens map[driver.Store][]int64) string {
	index := func(token int64) int { return slices.Index(tokens[s], token) }
	n := random.IntN(max(len(tokens[s]), 1))
	owner, token := fmt.Sprint("owner ", n), int64(0)
	if n < len(tokens[s]) && random.IntN(2) == 0 {
		token = tokens[s][n]
	}
	describe := func(records []driver.Record) (text string) {
		for _, rec := range records {
			text += fmt.Sprintf(" %d kept %v limit %d waiting %d;", index(rec.Token), rec.Kept, max(rec.Limit, 1), rec.Waiting)
		}
		return text
	}
	switch random.IntN(8) {
	case 0, 1, 2:
		req := driver.Request{
			Name: name, Owner: fmt.Sprint("owner ", len(tokens[s])), Holder: "h", TTL: time.Hour,
			Limit: []int{0, 0, 2, 3, driver.Shared}[random.IntN(5)],
		}
		if random.IntN(3) > 0 {
			req.Place = time.Hour
		}
		if req.Limit == 0 {
			req.Tokens = random.IntN(5)
		}
		res, err := s.Acquire(t.Context(), req)
		tokens[s] = append(tokens[s], res.Token)
		return fmt.Sprintf("acquire limit %d place %v: granted %v waiting %v behind %d, %v", req.Limit, req.Place > 0, res.Granted, res.Waiting, index(res.Held.Token), err)
	case 3, 4:
		keep := time.Duration(random.IntN(3)/2) * time.Hour
		ended, err := s.Release(t.Context(), driver.ReleaseRequest{Name: name, Owner: owner, Keep: keep})
		return fmt.Sprintf("release %d keep %v: %v, %v", n, keep, ended, err)
	case 5:
		got, err := s.Renew(t.Context(), []driver.RenewRequest{{Name: name, Owner: owner, Token: token, TTL: time.Minute}})
		return fmt.Sprintf("renew %d: %v %d, %v", n, got[0].State, index(got[0].Token), err)
	case 6:
		records, err := s.Break(t.Context(), name, token)
		for i := range records {
			records[i].Waiting = 0
		}
		return fmt.Sprintf("break of %d, all %v: %s, %v", n, token == 0, describe(records), err)
	}
	records, err := s.Lookup(t.Context(), name)
	return fmt.Sprintf("lookup: %s, %v", describe(records), err)
}
