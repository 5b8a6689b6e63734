package oldbatch

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"runtime"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"
)

const (
	bound     = 3 * time.Second
	minInline = time.Second
)

// A server records the batches of a queue. Each takes until the server is released.
type server struct {
	Queue[string]

	seen      sync.Mutex
	batches   []string // the calls of each
	deadlines []time.Duration
	release   []chan struct{}
}

func newServer() *server {
	s := &server{}
	for range 10 {
		s.release = append(s.release, make(chan struct{}))
	}
	s.Max, s.Bound, s.MinInline = 100, bound, minInline
	s.Send = func(_ context.Context, deadline time.Time, calls []string) {
		s.seen.Lock()
		released := s.release[len(s.batches)]
		s.batches = append(s.batches, fmt.Sprint(calls))
		s.deadlines = append(s.deadlines, time.Until(deadline))
		s.seen.Unlock()
		<-released
	}
	return s
}

// do makes calls in a goroutine of their own, which come after all calls before.
func (s *server) do(ctx context.Context, calls ...string) <-chan error {
	result := make(chan error, 1)
	go func() { result <- s.DoAll(ctx, calls) }()
	synctest.Wait()
	return result
}

func (s *server) finish(batch int) {
	close(s.release[batch])
	synctest.Wait()
}

func (s *server) expectBatches(t *testing.T, when string, want ...string) {
	t.Helper()
	s.seen.Lock()
	defer s.seen.Unlock()
	if !slices.Equal(s.batches, want) {
		t.Errorf("%s: the batches are %q, want %q", when, s.batches, want)
	}
}

func (s *server) expectIdle(t *testing.T) {
	t.Helper()
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.state != idle || len(s.waiting)+len(s.slow)+len(s.behind)+len(s.ahead) > 0 || s.solo > 0 {
		t.Errorf("without calls the queue is in state %d with %d slow batches, %d and %d waiters and %d solo callers",
			s.state, len(s.slow), len(s.waiting), len(s.behind), s.solo)
	}
}

func expect(t *testing.T, what string, result <-chan error, want error) {
	t.Helper()
	select {
	case err := <-result:
		if !errors.Is(err, want) {
			t.Errorf("%s: %v, want %v", what, err, want)
		}
	default:
		t.Errorf("%s: Do has not returned", what)
	}
}

func expectNone(t *testing.T, what string, result <-chan error) {
	t.Helper()
	select {
	case err := <-result:
		t.Errorf("%s: Do has returned %v", what, err)
	default:
	}
}

// A lone call goes at once; calls that come meanwhile go together, in their order.
func TestCallsGather(t *testing.T) {
	for _, inline := range []time.Duration{minInline, 0} {
		synctest.Test(t, func(t *testing.T) {
			s := newServer()
			s.MinInline = inline
			first := s.do(t.Context(), "a")
			later := []<-chan error{
				s.do(t.Context(), "b"), s.do(t.Context(), "c", "d"), s.do(t.Context(), "a"),
			}
			s.expectBatches(t, "before the first reply", "[a]")
			s.finish(0)
			expect(t, "the first call", first, nil)
			s.expectBatches(t, "after the first reply", "[a]", "[b c d a]")
			for _, result := range later {
				expectNone(t, "a call without a reply", result)
			}
			s.finish(1)
			for _, result := range later {
				expect(t, "a call of the second batch", result, nil)
			}
			s.expectIdle(t)
		})
	}
}

// A batch without a reply holds up the others until Bound. When it ends at last, the queue keeps
// the leader that has replaced its own.
func TestStuckLeaderIsReplaced(t *testing.T) {
	for _, inline := range []time.Duration{minInline, 0} {
		synctest.Test(t, func(t *testing.T) {
			s := newServer()
			s.MinInline = inline
			long, cancel := context.WithTimeout(t.Context(), time.Hour)
			defer cancel()
			stuck := s.do(long, "stuck")
			time.Sleep(time.Second)
			later := []<-chan error{s.do(long, "b"), s.do(long, "c")}
			time.Sleep(bound - time.Second - time.Millisecond)
			synctest.Wait()
			s.expectBatches(t, "before the bound", "[stuck]")
			time.Sleep(time.Millisecond)
			synctest.Wait()
			s.expectBatches(t, "at the bound", "[stuck]", "[b c]")
			after := s.do(long, "d")
			s.finish(0)
			expect(t, "the stuck call", stuck, nil)
			s.expectBatches(t, "after the late reply", "[stuck]", "[b c]")
			s.finish(1)
			s.expectBatches(t, "after the reply of the next", "[stuck]", "[b c]", "[d]")
			s.finish(2)
			for _, result := range append(later, after) {
				expect(t, "a call behind", result, nil)
			}
			s.expectIdle(t)
		})
	}
}

// newNamedServer returns a server of a queue that sends the next batch beside a slow one. The name
// of a call is its part before the dot.
func newNamedServer() *server {
	s := newServer()
	s.StuckAfter = 250 * time.Millisecond
	s.Name = func(call string) string {
		name, _, _ := strings.Cut(call, ".")
		return name
	}
	return s
}

// A batch that is slow holds up the calls of its names alone, until it ends: the server may have
// been stopped, and may serve two connections in any order when it continues. The calls behind it
// go together, in their order.
func TestSlowBatchHoldsUpItsNames(t *testing.T) {
	for _, inline := range []time.Duration{minInline, 0} {
		for _, first := range []int{0, 1} {
			synctest.Test(t, func(t *testing.T) {
				s := newNamedServer()
				s.MinInline = inline
				given, cancel := context.WithTimeout(t.Context(), 100*time.Millisecond)
				defer cancel()
				acquire := s.do(given, "a.acquire")
				time.Sleep(100 * time.Millisecond) // Its caller leaves, and releases.
				synctest.Wait()
				expect(t, "an acquisition at its deadline", acquire, ErrNoReply)
				release, other := s.do(t.Context(), "a.release"), s.do(t.Context(), "b.acquire")
				renewal := s.do(t.Context(), ".renew a", ".renew b")
				time.Sleep(150*time.Millisecond - 1)
				synctest.Wait()
				s.expectBatches(t, "before StuckAfter", "[a.acquire]")
				time.Sleep(time.Nanosecond)
				synctest.Wait()
				beside := []string{"[a.acquire]", "[b.acquire .renew a .renew b]"}
				s.expectBatches(t, "at StuckAfter", beside...)
				again := s.do(t.Context(), "a.again")
				late := s.do(t.Context(), "c.acquire") // goes with the next batch
				if first == 0 {
					s.finish(0)
					s.expectBatches(t, "after the slow one", beside...)
					s.finish(1)
					beside = append(beside, "[c.acquire a.release a.again]")
					s.expectBatches(t, "after both", beside...)
					s.finish(2)
				} else {
					s.finish(1)
					beside = append(beside, "[c.acquire]")
					s.expectBatches(t, "after that beside it", beside...)
					s.finish(2)
					d := s.do(t.Context(), "d.acquire")
					beside = append(beside, "[d.acquire]")
					s.expectBatches(t, "beside it again", beside...)
					s.finish(3)
					expect(t, "a call beside a slow batch", d, nil)
					s.finish(0)
					beside = append(beside, "[a.release a.again]")
					s.expectBatches(t, "after the slow one", beside...)
					s.finish(4)
				}
				for _, result := range []<-chan error{release, other, renewal, again, late} {
					expect(t, "a call", result, nil)
				}
				s.expectIdle(t)
			})
		}
	}
}

// endingContext is a context that ends after a number of calls of Err.
type endingContext struct {
	context.Context
	checks atomic.Int32
	after  int32
}

func (c *endingContext) Err() error {
	if c.checks.Add(1) > c.after {
		return context.Canceled
	}
	return nil
}

// The context of a caller that becomes the leader may end at any time: between any two checks, the
// calls behind it are sent, and it is clear what has become of its own.
func TestContextOfTheLeaderEnds(t *testing.T) {
	for after := range int32(6) {
		for behind := range 3 {
			synctest.Test(t, func(t *testing.T) {
				s := newServer()
				first := s.do(t.Context(), "first")
				ending := &endingContext{Context: t.Context(), after: after + 1}
				leader := s.do(ending, "leader")
				var others []<-chan error
				for i := range behind {
					others = append(others, s.do(t.Context(), fmt.Sprint(i)))
				}
				for i := range s.release {
					s.finish(i)
				}
				expect(t, "the first call", first, nil)
				for _, other := range others {
					expect(t, "a call behind the leader", other, nil)
				}
				isSent := strings.Contains(fmt.Sprint(s.batches), "leader")
				select {
				case err := <-leader:
					if isSent != (err == nil) || err != nil && !errors.Is(err, ErrNotSent) {
						t.Errorf("sent %v: %v", isSent, err)
					}
				default:
					t.Error("the call of the leader has not returned")
				}
				last := s.do(t.Context(), "last")
				expect(t, "a later call", last, nil)
				s.expectIdle(t)
			})
		}
	}
}

// A batch has until Bound, or until the deadline of a caller that runs Send itself.
func TestDeadlineOfABatch(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		for _, c := range []struct {
			limit, minInline, want time.Duration
		}{
			{0, minInline, bound},
			{time.Hour, minInline, bound},
			{2 * time.Second, minInline, 2 * time.Second},
			{minInline, minInline, minInline},
			{minInline - 1, minInline, bound},
			{time.Millisecond, minInline, bound},
			{0, 0, bound},
			{2 * time.Second, 0, bound},
		} {
			s := newServer()
			s.MinInline = c.minInline
			ctx := t.Context()
			if c.limit > 0 {
				limited, cancel := context.WithTimeout(ctx, c.limit)
				defer cancel()
				ctx = limited
			}
			result := s.do(ctx, "a")
			if s.deadlines[0] != c.want {
				t.Errorf("%+v: the batch may take %v", c, s.deadlines[0])
			}
			s.finish(0)
			expect(t, "a call", result, nil)
			s.expectIdle(t)
		}
	})
}

// A caller waits until its deadline, to the moment, wherever its call is; without a deadline until
// Bound. What was not sent then is never sent.
func TestDeadlineOfACaller(t *testing.T) {
	for _, limit := range []time.Duration{1, time.Second - 1, time.Second + 1, bound - 1, 0} {
		synctest.Test(t, func(t *testing.T) {
			long, cancel := context.WithTimeout(t.Context(), time.Hour)
			defer cancel()
			// expectTime makes a call, and expects it to end at its deadline.
			expectTime := func(s *server, call string, want error) {
				ctx, took := t.Context(), bound
				if limit > 0 {
					limited, cancel := context.WithTimeout(ctx, limit)
					defer cancel()
					ctx, took = limited, limit
				}
				began, result := time.Now(), s.do(ctx, call)
				time.Sleep(took - 1)
				synctest.Wait()
				expectNone(t, call, result)
				time.Sleep(time.Nanosecond)
				synctest.Wait()
				if expect(t, call, result, want); time.Since(began) != took {
					t.Errorf("%s may take %v", call, took)
				}
			}
			s := newServer()
			s.MinInline = 0
			expectTime(s, "sent by another goroutine", ErrNoReply)
			s.finish(0)
			s.expectIdle(t)

			s = newServer()
			s.do(long, "first")
			s.Bound = 2 * bound // The leader is not replaced.
			if limit > 0 {
				expectTime(s, "waits", ErrNotSent)
			}
			leader := s.do(long, "leader")
			began := s.do(t.Context(), "follows")
			s.finish(0)
			s.expectBatches(t, "in one batch", "[first]", "[leader follows]")
			if limit > 0 {
				expectTime(s, "waits, too", ErrNotSent)
			}
			time.Sleep(2*bound - limit - 1)
			synctest.Wait()
			expectNone(t, "a call that was sent", began)
			time.Sleep(time.Nanosecond)
			synctest.Wait()
			expect(t, "a call that was sent", began, ErrNoReply)
			s.finish(1)
			expect(t, "the leader", leader, nil)
			s.expectIdle(t)
		})
	}
}

// Calls whose callers have given up are not sent, and each one learns so; a leader that has given
// up is followed by another one.
func TestGivenUpCallsAreNotSent(t *testing.T) {
	for _, who := range []string{"a", "b", "c"} {
		synctest.Test(t, func(t *testing.T) {
			s := newServer()
			first := s.do(t.Context(), "first")
			results := map[string]<-chan error{}
			for _, call := range []string{"a", "b", "c"} {
				ctx, cancel := context.WithCancel(t.Context())
				defer cancel()
				results[call] = s.do(ctx, call)
				if call == who {
					cancel()
				}
			}
			s.finish(0)
			expect(t, "the first call", first, nil)
			left := map[string]string{"a": "[b c]", "b": "[a c]", "c": "[a b]"}[who]
			s.expectBatches(t, "after the first", "[first]", left)
			expect(t, "the call that was given up", results[who], ErrNotSent)
			s.finish(1)
			for call, result := range results {
				if call != who {
					expect(t, call, result, nil)
				}
			}
			s.expectIdle(t)
		})
	}
	synctest.Test(t, func(t *testing.T) {
		s := newServer()
		canceled, cancel := context.WithCancel(t.Context())
		cancel()
		expired, cancel := context.WithDeadline(t.Context(), time.Now())
		defer cancel()
		for _, ctx := range []context.Context{canceled, expired} {
			result := s.do(ctx, "late")
			err := <-result
			if !errors.Is(err, ErrNotSent) || !errors.Is(err, ctx.Err()) {
				t.Errorf("a call after the end of its context: %v", err)
			}
		}
		s.expectBatches(t, "after the end of the context")
		s.expectIdle(t)
	})
}

// If Send panics, or ends its goroutine, its own caller has that, and the others an error.
func TestPanic(t *testing.T) {
	for what, end := range map[string]func(){
		"panic":  func() { panic("of Send") },
		"Goexit": runtime.Goexit,
	} {
		synctest.Test(t, func(t *testing.T) {
			s := newServer()
			send := s.Send
			s.Send = func(ctx context.Context, deadline time.Time, calls []string) {
				send(ctx, deadline, calls)
				if calls[0] == "bad" {
					end()
				}
			}
			s.do(t.Context(), "first")
			ended := make(chan any, 1)
			go func() {
				defer func() { ended <- recover() }()
				_ = s.Do(t.Context(), "bad")
			}()
			synctest.Wait()
			beside := s.do(t.Context(), "beside")
			s.finish(0)
			after := s.do(t.Context(), "after")
			s.finish(1)
			if got := <-ended; (got != nil) != (what == "panic") {
				t.Errorf("%s: the caller that ran Send has recovered %v", what, got)
			}
			expect(t, what+": the call beside", beside, ErrNoReply)
			s.finish(2)
			expect(t, what+": the call after", after, nil)
			s.expectIdle(t)
		})
	}
}

// The first callers send on their own. From then on calls gather, until there are few.
func TestSolo(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newServer()
		s.Solo = 4
		var results []<-chan error
		for _, call := range []string{"a", "b", "c", "d", "e", "f", "g"} {
			results = append(results, s.do(t.Context(), call))
		}
		alone := []string{"[a]", "[b]", "[c]", "[d]", "[e]"}
		s.expectBatches(t, "five at once", alone...)
		for i := range 4 {
			s.finish(i)
			expect(t, "a call on its own", results[i], nil)
		}
		s.expectBatches(t, "the fifth has no reply", alone...)
		results = append(results, s.do(t.Context(), "h"))
		s.finish(4)
		s.expectBatches(t, "gathered", append(alone, "[f g h]")...)
		results = append(results, s.do(t.Context(), "i"))
		s.finish(5)
		s.expectBatches(t, "one behind a batch of three", append(alone, "[f g h]", "[i]")...)
		results = append(results, s.do(t.Context(), "j"))
		s.expectBatches(t, "gathered still", append(alone, "[f g h]", "[i]")...)
		s.finish(6)
		s.expectBatches(t, "one behind a batch of one", append(alone, "[f g h]", "[i]", "[j]")...)
		results = append(results, s.do(t.Context(), "k"))
		s.expectBatches(t, "no leader any more", append(alone, "[f g h]", "[i]", "[j]", "[k]")...)
		s.finish(7)
		s.finish(8)
		for _, result := range results[4:] {
			expect(t, "a call", result, nil)
		}
		s.expectIdle(t)
	})
}

// Whatever callers and server do, each caller returns by its deadline and with the truth, and the
// calls that one caller makes to one name keep their order while batches are in time, and are in
// two batches at once never, even if the next batch does not wait for a slow one.
func TestRandomCallers(t *testing.T) {
	for seed := range uint64(60) {
		synctest.Test(t, func(t *testing.T) {
			random := rand.New(rand.NewPCG(seed, 1))
			q := &Queue[*call]{Max: 1 + random.IntN(8), Bound: bound, Solo: int(seed%3) * 2}
			if seed%2 == 0 {
				q.MinInline = minInline
			}
			if seed >= 30 {
				q.StuckAfter = 250 * time.Millisecond
				q.Name = func(c *call) string { return c.name }
			}
			var mu sync.Mutex // of random, last, busy and inFlight
			last, busy, inFlight := map[string]int{}, map[string]bool{}, 0
			q.Send = func(_ context.Context, deadline time.Time, calls []*call) {
				mu.Lock()
				takes := time.Duration(random.Int64N(int64(2 * time.Second)))
				if inFlight++; inFlight > 1 && q.Solo == 0 && q.StuckAfter == 0 {
					t.Error("two batches at once")
				}
				for _, c := range calls {
					if c.sent {
						t.Error("a call is sent twice")
					}
					if c.sent = true; q.Solo == 0 && last[c.name] > c.number {
						t.Errorf("call %d to %s is sent after call %d", c.number, c.name, last[c.name])
					}
					last[c.name] = c.number
					if busy[c.name] && q.Solo == 0 {
						t.Errorf("call %d to %s is sent beside another one", c.number, c.name)
					}
				}
				for _, c := range calls {
					busy[c.name] = true
				}
				mu.Unlock()
				time.Sleep(min(takes, time.Until(deadline)))
				mu.Lock()
				defer mu.Unlock()
				for _, c := range calls {
					c.complete = true
					busy[c.name] = false
				}
				inFlight--
			}
			var group sync.WaitGroup
			for i := range 20 {
				name := fmt.Sprint(i)
				group.Go(func() {
					for number := range 30 {
						mu.Lock()
						limit := time.Duration(random.Int64N(int64(4 * time.Second)))
						canceled := random.IntN(4) == 0
						mu.Unlock()
						ctx, cancel := context.WithTimeout(context.Background(), limit)
						if canceled {
							time.AfterFunc(limit/2, cancel)
						}
						began, c := time.Now(), &call{name: name, number: number}
						err := q.Do(ctx, c)
						if took := time.Since(began); took > limit {
							t.Errorf("a call that may take %v took %v", limit, took)
						}
						cancel()
						mu.Lock()
						switch {
						case err == nil && c.complete:
						case errors.Is(err, ErrNotSent) && !c.sent:
						case errors.Is(err, ErrNoReply) && c.sent:
						default:
							t.Errorf("%v, though the call was sent (%v), and is complete (%v)", err, c.sent, c.complete)
						}
						mu.Unlock()
					}
				})
			}
			group.Wait()
			time.Sleep(bound)
			synctest.Wait()
			if q.state != idle || q.solo > 0 || len(q.waiting)+len(q.slow)+len(q.behind) > 0 {
				t.Error("a queue without calls is not idle")
			}
		})
	}
}

// A call is a call of TestRandomCallers.
type call struct {
	name           string
	number         int
	sent, complete bool
}
