//go:build unix

package main

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"maps"
	"os"
	"os/exec"
	"slices"
	"sync"
	"syscall"
	"time"

	"github.com/holdfast-go/holdfast/bench/internal/lockers"
	"github.com/holdfast-go/holdfast/bench/internal/result"
	"github.com/holdfast-go/holdfast/internal/faultproxy"
	"github.com/holdfast-go/holdfast/internal/hostclock"
	"github.com/holdfast-go/holdfast/internal/servers"
)

// electionSpans is how many spans of a measurement the election lasts.
const electionSpans = 120

// etcdElection lets candidates of all electors stand on one cluster at the same time, so that the
// faults are the same for all.
func etcdElection() scenario {
	const ttl, each = 5 * time.Second, 3
	sc := scenario{
		name:  "etcd-election",
		group: "etcd: 3 members",
		title: "An election under faults",
		about: fmt.Sprintf("Of each library, %d processes are candidates (TTL %v). All stand on one cluster at the same time, for %d times "+
			"-span, under one fault after the other: the cluster's leader is killed and started again after 3 s, or stopped for 4 s; a member "+
			"is restarted; and for two TTLs and 2 s, the leader's process is stopped, or its connections carry nothing, or they are closed "+
			"and cannot be made anew, or the process of a candidate in line is stopped. A TTL and a second pass between two faults. Each "+
			"candidate reads the context of its term every 2 ms. Terms overlap if the contexts of two are alive at one moment, by the clock "+
			"of the host, in processes that run. A term falls if its token is not greater than that of each term before it.",
			each, ttl, electionSpans),
		metrics: []result.Metric{
			{Key: "overlaps", Title: "overlaps of terms", Unit: result.Count, Lower: true, Chart: true},
			{Key: "longest", Title: "longest overlap", Unit: result.Micros, Lower: true},
			{Key: "leaderless", Title: "time without a leader", Unit: result.Percent, Lower: true, Chart: true},
			{Key: "falling", Title: "terms that fall", Unit: result.Count, Lower: true},
			{Key: "terms", Title: "terms", Unit: result.Count},
			{Key: "faults", Title: "faults", Unit: result.Count},
		},
		ttl: ttl, etcdMembers: 3,
	}
	for _, e := range lockers.Electors() {
		sc.contenders = append(sc.contenders, e.Contender)
	}
	sc.together = func(r *scenarioRun, progress io.Writer) ([]result.Sample, error) { return r.elect(each, progress) }
	return sc
}

// A sighting is a time in which a candidate saw the context of its term alive, again and again.
type sighting struct {
	Candidate int
	Token     int64
	From, To  time.Duration // of the clock of the host
}

// stoppedAfter is the time between two looks of a candidate after which its process counts as
// stopped in between.
const stoppedAfter = 500 * time.Millisecond

// watchTerm reports sightings until the term is over. The clock is read before the context: at that
// time it was alive.
func watchTerm(term context.Context, token int64, report func(sighting)) {
	s := sighting{Token: token}
	for {
		now := hostclock.Now()
		over := term.Err() != nil
		stopped := now-s.To > stoppedAfter
		if s.From > 0 && (over || stopped || s.To-s.From > 100*time.Millisecond) {
			report(s)
			s.From = s.To
		}
		if over {
			return
		}
		if s.From == 0 || stopped {
			s.From = now
		}
		s.To = now
		time.Sleep(2 * time.Millisecond)
	}
}

// candidateEnv makes this program a candidate. Its value is the name of the elector. The arguments
// are the TTL and the members.
const candidateEnv = "HOLDFAST_BENCH_CANDIDATE"

// standInElection is the main function of a candidate. It stands until its input ends.
func standInElection(name string, args []string) error {
	all := lockers.Electors()
	i := slices.IndexFunc(all, func(e lockers.Elector) bool { return e.Name == name })
	if i < 0 || len(args) == 0 {
		return fmt.Errorf("no candidate %q", name)
	}
	ttl, err := time.ParseDuration(args[0])
	if err != nil {
		return err
	}
	ctx, cancel := context.WithCancel(context.Background())
	go func() {
		_, _ = io.Copy(io.Discard, os.Stdin) // It ends.
		cancel()
	}()
	out := json.NewEncoder(os.Stdout)
	return all[i].Stand(ctx, lockers.Options{Servers: args[1:], TTL: ttl}, func(term context.Context, token int64) {
		watchTerm(term, token, func(s sighting) { _ = out.Encode(s) }) // If it fails, the input ends, too.
	})
}

// A candidate is a process that stands.
type candidate struct {
	number  int
	elector string
	cmd     *exec.Cmd
	leave   io.Closer // its input
	proxies []*faultproxy.Proxy
	targets []string // of the proxies

	mu   sync.Mutex
	seen []sighting
	done chan error
}

func (r *scenarioRun) startCandidate(elector string, number int) (*candidate, error) {
	self, err := os.Executable()
	if err != nil {
		return nil, err
	}
	c := &candidate{number: number, elector: elector, targets: servers.EtcdAddrs(r.etcd), done: make(chan error, 1)}
	args := []string{r.ttl.String()}
	for _, target := range c.targets {
		proxy, err := faultproxy.Listen(target)
		if err != nil {
			return nil, err
		}
		c.proxies, args = append(c.proxies, proxy), append(args, proxy.Addr())
	}
	c.cmd = exec.Command(self, args...)
	c.cmd.Env, c.cmd.Stderr = append(os.Environ(), candidateEnv+"="+elector), os.Stderr
	out, err := c.cmd.StdoutPipe()
	if err != nil {
		return nil, err
	}
	if c.leave, err = c.cmd.StdinPipe(); err != nil {
		return nil, err
	}
	if err := c.cmd.Start(); err != nil {
		return nil, err
	}
	go func() {
		lines := json.NewDecoder(out)
		for {
			s := sighting{}
			if err := lines.Decode(&s); err != nil {
				if errors.Is(err, io.EOF) {
					err = nil
				}
				c.done <- errors.Join(err, c.cmd.Wait())
				return
			}
			s.Candidate = number
			c.mu.Lock()
			c.seen = append(c.seen, s)
			c.mu.Unlock()
		}
	}()
	return c, nil
}

// sightings returns what the candidate has reported.
func (c *candidate) sightings() []sighting {
	c.mu.Lock()
	defer c.mu.Unlock()
	return slices.Clone(c.seen)
}

// close lets the candidate leave, and kills it if it takes more than 10 s.
func (c *candidate) close() error {
	_ = c.leave.Close()
	defer time.AfterFunc(10*time.Second, func() { _ = c.cmd.Process.Kill() }).Stop()
	err := <-c.done
	for _, p := range c.proxies {
		p.Close()
	}
	return err
}

// elect runs an election of each elector, with faults, and judges the terms.
func (r *scenarioRun) elect(each int, progress io.Writer) (samples []result.Sample, err error) {
	var all []*candidate
	defer func() {
		for _, c := range all {
			_ = c.cmd.Process.Kill() // It has ended, unless there was an error.
		}
	}()
	for i := range each {
		for _, e := range r.contenders {
			c, err := r.startCandidate(e.Name, i)
			if err != nil {
				return nil, err
			}
			all = append(all, c)
		}
	}
	// The trial begins when each elector has a leader.
	from := map[string]time.Duration{}
	for end := time.Now().Add(measureTimeout); len(from) < len(r.contenders); time.Sleep(10 * time.Millisecond) {
		for _, c := range all {
			if seen := c.sightings(); len(seen) > 0 && from[c.elector] == 0 {
				from[c.elector] = seen[0].From
			}
		}
		if time.Now().After(end) {
			return nil, errStuck
		}
	}
	until := hostclock.Now() + electionSpans*r.span
	script, faults := r.electionFaults(all), 0
	for ; hostclock.Now() < until; faults++ {
		f := script[faults%len(script)]
		fmt.Fprintf(progress, "%s: %s\n", r.name, f.name)
		mend := f.begin()
		time.Sleep(f.lasts)
		mend()
		time.Sleep(r.ttl + time.Second)
	}
	until = hostclock.Now()
	seen := map[string][]sighting{}
	for _, c := range all {
		err = errors.Join(err, c.close())
		seen[c.elector] = append(seen[c.elector], c.sightings()...)
	}
	for _, e := range r.contenders {
		v := judge(seen[e.Name], from[e.Name], until)
		v["faults"] = float64(faults)
		samples = append(samples, result.Sample{Contender: e.Name, Values: v})
	}
	return samples, err
}

// An electionFault is one step of the script.
type electionFault struct {
	name  string
	lasts time.Duration
	begin func() (mend func())
}

// electionFaults returns the script. A fault of a candidate is one of a candidate of each elector.
func (r *scenarioRun) electionFaults(all []*candidate) []electionFault {
	// victims returns, for each elector, the candidate that led last, or one that did not.
	victims := func(leads bool) (victims []*candidate) {
		last := func(c *candidate) time.Duration {
			if seen := c.sightings(); len(seen) > 0 {
				return seen[len(seen)-1].To
			}
			return 0
		}
		for _, e := range r.contenders {
			own := slices.DeleteFunc(slices.Clone(all), func(c *candidate) bool { return c.elector != e.Name })
			slices.SortFunc(own, func(a, b *candidate) int { return cmp.Compare(last(b), last(a)) })
			if !leads {
				own = own[1:]
			}
			victims = append(victims, own[0])
		}
		return victims
	}
	stop := func(leads bool) func() func() {
		return func() func() {
			stopped := victims(leads)
			signal := func(sig syscall.Signal) {
				for _, c := range stopped {
					_ = c.cmd.Process.Signal(sig) // If it has ended, close returns its error.
				}
			}
			signal(syscall.SIGSTOP)
			return func() { signal(syscall.SIGCONT) }
		}
	}
	cut := func(harm func(p *faultproxy.Proxy), mend func(p *faultproxy.Proxy, target string)) func() func() {
		return func() func() {
			off := victims(true)
			for _, c := range off {
				for _, p := range c.proxies {
					harm(p)
				}
			}
			return func() {
				for _, c := range off {
					for i, p := range c.proxies {
						mend(p, c.targets[i])
					}
				}
			}
		}
	}
	long := 2*r.ttl + 2*time.Second
	return []electionFault{
		{"the cluster's leader is killed", 3 * time.Second, func() func() {
			m := r.etcdMember(true)
			m.Kill()
			return m.Start
		}},
		{"the leaders' processes are stopped", long, stop(true)},
		{"the cluster's leader is stopped", 4 * time.Second, func() func() {
			m := r.etcdMember(true)
			m.Pause()
			return m.Resume
		}},
		{"the leaders' connections carry nothing", long, cut(func(p *faultproxy.Proxy) {
			p.Hold(faultproxy.Up)
			p.Hold(faultproxy.Down)
		}, func(p *faultproxy.Proxy, _ string) {
			p.Pass(faultproxy.Up)
			p.Pass(faultproxy.Down)
		})},
		{"a member is restarted", 0, func() func() { return r.etcdMember(false).Restart }},
		{"the leaders' connections are closed", long, cut(func(p *faultproxy.Proxy) {
			p.SetTarget("127.0.0.1:1") // No new connection succeeds.
			p.Reset()
		}, (*faultproxy.Proxy).SetTarget)},
		{"processes in line are stopped", long, stop(false)},
	}
}

// A termKey identifies a term of an elector.
type termKey struct {
	candidate int
	token     int64
}

// judge returns the figures of one election between two times.
func judge(seen []sighting, from, until time.Duration) map[string]float64 {
	slices.SortFunc(seen, func(a, b sighting) int { return cmp.Compare(a.From, b.From) })
	terms := map[termKey]bool{}
	overlaps := map[[2]termKey][2]time.Duration{} // from the first common moment to the last
	greatest, falling := int64(-1), 0
	covered, leaderless := from, time.Duration(0)
	var alive []sighting
	for _, s := range seen {
		key := termKey{s.Candidate, s.Token}
		if !terms[key] {
			terms[key] = true
			if s.Token <= greatest {
				falling++
			}
			greatest = max(greatest, s.Token)
		}
		alive = slices.DeleteFunc(alive, func(other sighting) bool { return other.To < s.From })
		for _, other := range alive {
			if other.Candidate == s.Candidate {
				continue
			}
			pair := [2]termKey{{other.Candidate, other.Token}, key}
			if other.Candidate > s.Candidate {
				pair[0], pair[1] = pair[1], pair[0]
			}
			common, known := overlaps[pair]
			if !known {
				common[0] = s.From
			}
			overlaps[pair] = [2]time.Duration{common[0], max(common[1], min(s.To, other.To))}
		}
		alive = append(alive, s)
		leaderless += max(0, min(s.From, until)-covered)
		covered = max(covered, min(s.To, until))
	}
	leaderless += max(0, until-covered)
	longest := time.Duration(0)
	for common := range maps.Values(overlaps) {
		longest = max(longest, common[1]-common[0])
	}
	return map[string]float64{
		"terms": float64(len(terms)), "falling": float64(falling), "overlaps": float64(len(overlaps)),
		"longest": microseconds(longest)[0], "leaderless": 100 * float64(leaderless) / float64(max(1, until-from)),
	}
}
