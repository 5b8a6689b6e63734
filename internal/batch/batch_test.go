package batch

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

// A batch has no more calls than Max, unless they are of one caller, and the others follow.
func TestBatchSize(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newServer()
		s.Max = 2
		for _, calls := range [][]string{{"a"}, {"b"}, {"c", "d"}, {"e"}, {"f"}, {"g", "h", "i"}, {"j"}} {
			s.do(t.Context(), calls...)
		}
		want := []string{"[a]", "[b]", "[c d]", "[e f]", "[g h i]", "[j]"}
		for i := range want {
			s.expectBatches(t, "in turn", want[:i+1]...)
			s.finish(i)
		}
		s.expectIdle(t)
	})
}

// Callers that are woken together call again together: theirs is one batch, not one for each. On
// one processor the order of goroutines is certain.
func TestCallersCallAgainTogether(t *testing.T) {
	defer runtime.GOMAXPROCS(runtime.GOMAXPROCS(1))
	const callers, rounds = 16, 50
	batches := 0 // One is sent at a time.
	q := &Queue[int]{Max: 1000, Bound: bound, MinInline: minInline}
	q.Send = func(context.Context, time.Time, []int) { batches++; runtime.Gosched() }
	var group sync.WaitGroup
	for range callers {
		group.Go(func() {
			for range rounds {
				_ = q.Do(context.Background(), 1)
			}
		})
	}
	group.Wait()
	if batches > 3*rounds/2 { // 2*rounds if the queue is idle before they have run
		t.Errorf("%d callers with %d calls each took %d batches", callers, rounds, batches)
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

// A batch holds up the next one until StuckAfter, and may itself take until Bound.
func TestStuckAfter(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newServer()
		s.StuckAfter = 50 * time.Millisecond
		stuck := s.do(t.Context(), "stuck")
		later := s.do(t.Context(), "b")
		time.Sleep(49 * time.Millisecond)
		synctest.Wait()
		s.expectBatches(t, "before StuckAfter", "[stuck]")
		time.Sleep(time.Millisecond)
		synctest.Wait()
		s.expectBatches(t, "at StuckAfter", "[stuck]", "[b]")
		time.Sleep(bound / 2)
		s.finish(0)
		expect(t, "the stuck call", stuck, nil)
		s.finish(1)
		expect(t, "the call behind", later, nil)
		s.expectIdle(t)
	})
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

// A batch that does not end holds up its names until Bound. A call behind it that is given up
// before is not sent.
func TestCallsBehindASlowBatchAtItsBound(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newNamedServer()
		s.MinInline = 0 // Send exceeds its deadline.
		long, cancel := context.WithTimeout(t.Context(), time.Hour)
		defer cancel()
		s.do(long, "a.1")
		short, cancel := context.WithTimeout(t.Context(), bound-1)
		defer cancel()
		given, second := s.do(short, "a.2"), s.do(long, "a.3")
		time.Sleep(time.Second)
		synctest.Wait()
		s.do(long, "b.1") // hangs, too
		third := s.do(long, "b.2")
		time.Sleep(bound - time.Second - 1)
		synctest.Wait()
		expect(t, "a call that is given up behind a slow batch", given, ErrNotSent)
		s.expectBatches(t, "before the bound", "[a.1]", "[b.1]")
		time.Sleep(time.Nanosecond)
		synctest.Wait()
		s.expectBatches(t, "at the bound", "[a.1]", "[b.1]", "[a.3]")
		s.finish(2)
		expect(t, "the call behind", second, nil)
		time.Sleep(time.Second)
		synctest.Wait()
		s.expectBatches(t, "at the bound of the other one", "[a.1]", "[b.1]", "[a.3]", "[b.2]")
		s.finish(3)
		expect(t, "the call behind the other one", third, nil)
		s.finish(0)
		s.finish(1)
		s.expectIdle(t)
	})
}

// Calls that come back from behind a slow batch do not wait longer than others for the batch in
// flight then, should that be slow as well.
func TestSlowBatchesInTurn(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newNamedServer()
		s.do(t.Context(), "a.1")
		behind := s.do(t.Context(), "a.2")
		time.Sleep(time.Second)
		synctest.Wait()
		s.do(t.Context(), "b.1")
		time.Sleep(100 * time.Millisecond)
		s.finish(0)
		s.expectBatches(t, "after the slow one", "[a.1]", "[b.1]")
		time.Sleep(150 * time.Millisecond)
		synctest.Wait()
		s.expectBatches(t, "when the other is slow", "[a.1]", "[b.1]", "[a.2]")
		s.finish(2)
		expect(t, "the call that was behind", behind, nil)
		s.finish(1)
		s.expectIdle(t)
	})
}

// The next batch goes beside slow ones as soon as the last of them is slow, though others wait for
// the bound of the first. A call without a name waits for no other.
func TestBatchBesideTwoSlowOnes(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newNamedServer()
		var results []<-chan error
		for _, calls := range [][]string{{"a.1"}, {"a.2"}, {".1", ".2"}} {
			results = append(results, s.do(t.Context(), calls...))
		}
		time.Sleep(250 * time.Millisecond)
		synctest.Wait()
		results = append(results, s.do(t.Context(), ".3"))
		s.expectBatches(t, "when the first is slow", "[a.1]", "[.1 .2]")
		time.Sleep(250 * time.Millisecond)
		synctest.Wait()
		s.expectBatches(t, "when the second is slow", "[a.1]", "[.1 .2]", "[.3]")
		for i := range 4 {
			s.finish(i)
		}
		for _, result := range results {
			expect(t, "a call", result, nil)
		}
		s.expectIdle(t)
	})
}

// A leader with less time than the callers behind it does not end their batch at its deadline.
func TestShortDeadlineOfALeader(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newServer()
		s.do(t.Context(), "first")
		short, cancel := context.WithTimeout(t.Context(), minInline+time.Millisecond)
		defer cancel()
		leader, behind := s.do(short, "leader"), s.do(t.Context(), "behind")
		s.finish(0)
		if len(s.deadlines) != 2 || s.deadlines[1] != bound {
			t.Errorf("the batches may take %v", s.deadlines)
		}
		time.Sleep(minInline + time.Millisecond)
		synctest.Wait()
		expect(t, "the leader at its deadline", leader, ErrNoReply)
		s.finish(1)
		expect(t, "the call behind", behind, nil)
		s.expectIdle(t)
	})
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

// A call that comes when the leader has been stuck for long is sent at once, and the one after it
// waits for that one's own bound.
func TestCallAfterAStuckLeader(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newServer()
		s.do(t.Context(), "stuck")
		time.Sleep(10 * bound)
		second := s.do(t.Context(), "b")
		s.expectBatches(t, "long after the bound", "[stuck]", "[b]")
		s.do(t.Context(), "c")
		time.Sleep(bound - time.Millisecond)
		synctest.Wait()
		s.expectBatches(t, "within the bound of the second", "[stuck]", "[b]")
		s.finish(1)
		expect(t, "the second call", second, nil)
		s.expectBatches(t, "after the second", "[stuck]", "[b]", "[c]")
		s.finish(2)
		s.finish(0)
		s.expectIdle(t)
	})
}

// A queue that is busy for long is not stuck while each batch is in time.
func TestBusyIsNotStuck(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newServer()
		s.Max = 1
		long, cancel := context.WithTimeout(t.Context(), time.Hour)
		defer cancel()
		for _, call := range []string{"a", "b", "c", "d"} {
			s.do(long, call)
		}
		for i := range 3 {
			time.Sleep(bound - time.Millisecond)
			s.finish(i)
		}
		s.expectBatches(t, "just within the bound of each", "[a]", "[b]", "[c]", "[d]")
		time.Sleep(bound - time.Millisecond)
		e := s.do(long, "e")
		s.expectBatches(t, "within the bound of the last", "[a]", "[b]", "[c]", "[d]")
		s.finish(3)
		s.finish(4)
		expect(t, "the last call", e, nil)
		s.expectIdle(t)
	})
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

// Send has the values of a lone caller's context, and none for a batch of several.
func TestValues(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		type key struct{}
		var got []any
		q := &Queue[int]{Max: 10, Bound: bound, MinInline: minInline}
		q.Send = func(ctx context.Context, _ time.Time, _ []int) {
			got = append(got, ctx.Value(key{}))
			time.Sleep(time.Millisecond)
		}
		ctx := context.WithValue(t.Context(), key{}, "value")
		for range 3 {
			go func() { _ = q.Do(ctx, 1) }()
			synctest.Wait()
		}
		time.Sleep(time.Second)
		synctest.Wait()
		if !slices.Equal(got, []any{"value", nil}) {
			t.Errorf("the values are %v", got)
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

// A process that was stopped sends no call whose deadline passed meanwhile, though the timers of
// its callers have not been seen to fire.
func TestOverdueCallsAreNotSent(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		q := &Queue[string]{Max: 10, Bound: bound, MinInline: minInline}
		now := time.Now()
		for _, left := range []time.Duration{time.Second, -1, 0, time.Minute} {
			q.waiting = append(q.waiting, &waiter[string]{
				ctx: t.Context(), deadline: now.Add(left), wake: make(chan signal, 2),
			})
		}
		all := slices.Clone(q.waiting)
		batch := q.take(now)
		if len(batch) != 2 || batch[0] != all[0] || batch[1] != all[3] || len(q.waiting) != 0 {
			t.Errorf("the batch has %d calls, and %d wait", len(batch), len(q.waiting))
		}
		for _, w := range all[1:3] {
			if len(w.wake) != 1 || !errors.Is(w.err, ErrNotSent) {
				t.Errorf("an overdue call ended with %v", w.err)
			}
		}
	})
}

// A leader whose time is up before it learns that it is the leader is followed by another one; a
// caller whose reply comes at its deadline has that.
func TestSignalsAtTheDeadline(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		q := &Queue[string]{Max: 10, Bound: bound, MinInline: minInline}
		now := time.Now()
		newWaiter := func(left time.Duration) *waiter[string] {
			return &waiter[string]{ctx: t.Context(), deadline: now.Add(left), wake: make(chan signal, 2)}
		}
		late, next, sent := newWaiter(0), newWaiter(time.Second), newWaiter(0)
		q.waiting = []*waiter[string]{late, next}
		q.nameLeader()
		err := q.leave(late)
		if !errors.Is(err, ErrNotSent) || len(next.wake) != 1 || q.waiting[0] != next {
			t.Errorf("the leader ends with %v, and the next one has %d signals", err, len(next.wake))
		}
		if err := q.leave(sent); !errors.Is(err, ErrNoReply) {
			t.Errorf("a call without a reply at its deadline: %v", err)
		}
		sent.wake <- done
		if err := q.leave(sent); err != nil {
			t.Errorf("a call with a reply at its deadline: %v", err)
		}
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

// Callers that come while those of a small batch run are one batch again, if they are many.
func TestBurstBehindASmallBatch(t *testing.T) {
	defer runtime.GOMAXPROCS(runtime.GOMAXPROCS(1))
	const burst = 100
	var inFlight, most atomic.Int32
	q := &Queue[string]{Max: 2 * burst, Bound: bound, MinInline: minInline, Solo: 4}
	release := map[string]chan struct{}{"solo": make(chan struct{}), "first": make(chan struct{}), "pair": make(chan struct{})}
	q.Send = func(_ context.Context, _ time.Time, calls []string) {
		if n := inFlight.Add(1); n > most.Load() {
			most.Store(n) // on one processor
		}
		if wait := release[calls[0]]; wait != nil {
			<-wait
		} else {
			runtime.Gosched()
		}
		inFlight.Add(-1)
	}
	var group sync.WaitGroup
	do := func(call string, then func()) {
		group.Go(func() {
			if err := q.Do(context.Background(), call); err != nil {
				t.Error(err)
			}
			then()
		})
	}
	until := func(sent int32, waiting int) {
		for inFlight.Load() != sent || q.Waiting() != waiting {
			runtime.Gosched()
		}
	}
	nothing := func() {}
	for range 4 {
		do("solo", nothing)
	}
	until(4, 0)
	do("first", nothing) // a batch of one
	until(5, 0)
	do("pair", nothing)
	until(5, 1)
	do("pair", func() {
		for range burst {
			do("burst", nothing)
		}
	})
	until(5, 2)
	close(release["solo"])
	until(1, 2)
	most.Store(0)
	close(release["first"])
	until(1, 0)
	close(release["pair"])
	group.Wait()
	if n := most.Load(); n > 5 {
		t.Errorf("%d requests at a time, and at most 4 callers may send their own beside a batch", n)
	}
}

// SendSolo sends the calls of callers on their own, and Send all others, single ones too.
func TestSendSolo(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newServer()
		var solo []string
		s.Solo = 1
		s.SendSolo = func(_ context.Context, _ time.Time, calls []string) {
			solo = append(solo, calls...)
			time.Sleep(time.Second)
		}
		alone, batched := s.do(t.Context(), "a"), s.do(t.Context(), "b")
		s.expectBatches(t, "two at once", "[b]")
		s.finish(0)
		time.Sleep(time.Second)
		synctest.Wait()
		expect(t, "the call on its own", alone, nil)
		expect(t, "the other call", batched, nil)
		if !slices.Equal(solo, []string{"a"}) {
			t.Errorf("on their own go %q, want a", solo)
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
