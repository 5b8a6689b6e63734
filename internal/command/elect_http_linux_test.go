package command

import (
	"bufio"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"os"
	"os/exec"
	"regexp"
	"slices"
	"strconv"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"github.com/holdfast-go/holdfast/internal/faultproxy"
	"github.com/holdfast-go/holdfast/internal/servers"
	"github.com/holdfast-go/holdfast/internal/storecheck"
)

// officeTTL is short, so that the test is.
const officeTTL = 2 * time.Second

// An office is an election, and the answers of 200 that its candidates have given.
type office struct {
	t       *testing.T
	mu      sync.Mutex
	answers int
	terms   map[int64]*officeTerm // by token
	newest  int64                 // the token of the newest term
}

// An officeTerm is the leader of a term, and when the first and the last 200 of it were received.
type officeTerm struct {
	leader      *officeCandidate
	first, last time.Time
}

// An officeCandidate is a process that is started again whenever it has ended.
type officeCandidate struct {
	number int
	proxy  *faultproxy.Proxy
	pid    atomic.Int64
	base   atomic.Value // the URL of its page, "" until it has one
}

// TestNeverTwoLeaders: three candidates, one of them with a command, are asked all the time
// whether they lead, while the leader is killed, stopped and cut off from the store. A question
// that is asked after the 200 of a later term never gets a 200. An answer to an earlier question
// may be under way for as long as its process is stopped.
func TestNeverTwoLeaders(t *testing.T) {
	t.Parallel()
	acceptSignals()
	server := servers.StartRedis(t)
	o := &office{t: t, terms: map[int64]*officeTerm{}}
	ctx, end := context.WithCancel(context.Background())
	var background sync.WaitGroup
	t.Cleanup(func() {
		end()
		background.Wait()
	})
	for i := range 3 {
		c := &officeCandidate{number: i, proxy: faultproxy.Start(t, server.Addr)}
		c.base.Store("")
		background.Go(func() { o.repeat(ctx, c, o.serve) })
		background.Go(func() { o.repeat(ctx, c, o.ask) })
	}
	faults := []string{"kill", "stop", "cut"}
	if os.Getenv("TEST_WHOLE") != "" {
		faults = slices.Repeat(faults, 30)
	}
	var took []time.Duration
	for _, fault := range faults {
		took = append(took, o.depose(fault))
	}
	slices.Sort(took)
	o.mu.Lock()
	defer o.mu.Unlock()
	t.Logf("%d faults, %d answers of 200 in %d terms; another led after p50 %v, max %v", len(took), o.answers, len(o.terms),
		took[len(took)/2].Round(time.Millisecond), slices.Max(took).Round(time.Millisecond))
}

func (o *office) repeat(ctx context.Context, c *officeCandidate, do func(context.Context, *officeCandidate) error) {
	for ctx.Err() == nil {
		if err := do(ctx, c); err != nil && ctx.Err() == nil {
			o.t.Error(err)
			return
		}
	}
}

var addressLine = regexp.MustCompile(`^holdfast: (http://\S+)/leader tells`)

// serve runs the process of a candidate until that is killed, or has lost its lock.
func (o *office) serve(ctx context.Context, c *officeCandidate) error {
	args := []string{"elect", "office", "--store", "redis://" + c.proxy.Addr(), "--ttl", officeTTL.String(), "--http", "127.0.0.1:0"}
	if c.number == 0 {
		args = append(args, "--", "sleep", "1000")
	}
	cmd := exec.CommandContext(ctx, "holdfast", args...)
	messages, err := cmd.StderrPipe()
	if err != nil {
		return err
	}
	if err := cmd.Start(); err != nil {
		return err
	}
	c.pid.Store(int64(cmd.Process.Pid))
	for lines := bufio.NewScanner(messages); lines.Scan(); {
		if match := addressLine.FindStringSubmatch(lines.Text()); match != nil {
			c.base.Store(match[1])
		}
	}
	c.base.Store("")
	_ = cmd.Wait() // of one that was killed
	return nil
}

// signal sends a signal to the process of a candidate, and to its supervisor if it has one.
func (c *officeCandidate) signal(sig syscall.Signal) {
	pid := int(c.pid.Load())
	_ = exec.Command("pkill", "-"+strconv.Itoa(int(sig)), "-P", strconv.Itoa(pid)).Run() // it may have none
	_ = syscall.Kill(pid, sig)
}

// ask asks a candidate whether it leads.
func (o *office) ask(ctx context.Context, c *officeCandidate) error {
	time.Sleep(2 * time.Millisecond)
	sent := time.Now()
	request, err := http.NewRequestWithContext(ctx, http.MethodGet, c.base.Load().(string)+"/leader", nil)
	if err != nil {
		return err
	}
	answer, err := http.DefaultClient.Do(request)
	if err != nil {
		return nil // it has no page, or was killed
	}
	defer answer.Body.Close()
	var told struct {
		Leading bool
		Holder  string
		Token   int64
	}
	body, err := io.ReadAll(answer.Body)
	if err != nil {
		return nil // it was killed, or has ceased to lead
	}
	err = json.Unmarshal(body, &told)
	if err != nil || told.Leading != (answer.StatusCode == 200) || told.Leading && (told.Token == 0 || told.Holder == "") {
		return fmt.Errorf("%d with %q: %w", answer.StatusCode, body, err)
	}
	if told.Leading {
		o.hear(c, told.Token, sent, time.Now())
	}
	return nil
}

// hear takes note of a 200.
func (o *office) hear(c *officeCandidate, token int64, sent, received time.Time) {
	o.mu.Lock()
	defer o.mu.Unlock()
	o.answers++
	if o.terms[token] == nil {
		o.terms[token] = &officeTerm{leader: c, first: received}
	}
	if other := o.terms[token].leader; other != c {
		o.t.Errorf("candidates %d and %d lead under one token, %d", other.number, c.number, token)
	}
	for later, term := range o.terms {
		if later > token && term.first.Before(sent) {
			o.t.Errorf("candidate %d still led under %d, %v after candidate %d did under %d",
				c.number, token, sent.Sub(term.first), term.leader.number, later)
		}
	}
	o.terms[token].last = received
	o.newest = max(o.newest, token)
}

// awaitLeader waits until somebody leads under a token above that of a term.
func (o *office) awaitLeader(after int64) (leader *officeCandidate, token int64) {
	o.t.Helper()
	storecheck.Eventually(o.t, fmt.Sprintf("somebody leads after the term %d", after), func() bool {
		o.mu.Lock()
		defer o.mu.Unlock()
		if o.newest > after && time.Since(o.terms[o.newest].last) < officeTTL/4 {
			leader, token = o.terms[o.newest].leader, o.newest
		}
		return leader != nil
	})
	return leader, token
}

// depose harms the leader until another leads, and for a while longer, and returns how long that
// took.
func (o *office) depose(fault string) time.Duration {
	o.t.Helper()
	leader, token := o.awaitLeader(0)
	began := time.Now()
	switch fault {
	case "kill":
		leader.signal(syscall.SIGKILL)
	case "stop":
		leader.signal(syscall.SIGSTOP)
		defer leader.signal(syscall.SIGCONT)
	case "cut":
		leader.proxy.Hold(faultproxy.Up)
		leader.proxy.Hold(faultproxy.Down)
		defer func() {
			leader.proxy.Reset()
			leader.proxy.Pass(faultproxy.Up)
			leader.proxy.Pass(faultproxy.Down)
		}()
	}
	o.awaitLeader(token)
	took := time.Since(began)
	time.Sleep(officeTTL / 2)
	return took
}
