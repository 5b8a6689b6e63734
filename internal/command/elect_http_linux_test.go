package command

import (
	"bufio"
	"encoding/json"
	"fmt"
	"io"
	"math/rand/v2"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/holdfast-go/holdfast/internal/faultproxy"
	"github.com/holdfast-go/holdfast/internal/servers"
	"github.com/holdfast-go/holdfast/internal/storecheck"
)

// TestNeverTwoLeaders: three candidates, one of them with a command, are asked all the time
// whether they lead, while the leader is killed, stopped and cut off from the store. A question
// that is asked after the 200 of a later term never gets a 200: for ten minutes with TEST_WHOLE. An
// answer to an earlier question may be under way for as long as its process is stopped.
func TestNeverTwoLeaders(t *testing.T) {
	t.Parallel()
	acceptSignals()
	server := servers.StartRedis(t)
	o := &office{t: t, ended: make(chan struct{}), first: map[int64]time.Time{}, leader: map[int64]*officeCandidate{}}
	t.Cleanup(o.end)
	for i := range 3 {
		c := &officeCandidate{number: i, proxy: faultproxy.Start(t, server.Addr)}
		o.candidates = append(o.candidates, c)
		o.start(c)
		o.background.Go(func() { o.askForever(c) })
	}
	faults := []string{"kill", "stop", "cut"}
	var took []time.Duration
	if os.Getenv("TEST_WHOLE") == "" {
		for _, fault := range faults {
			took = append(took, o.depose(fault))
		}
	} else {
		for began := time.Now(); time.Since(began) < 10*time.Minute; {
			took = append(took, o.depose(faults[rand.N(len(faults))]))
		}
	}
	slices.Sort(took)
	o.mu.Lock()
	defer o.mu.Unlock()
	t.Logf("%d faults, %d answers of 200 in %d terms; another led after p50 %v, max %v", len(took), o.answers, len(o.first),
		took[len(took)/2].Round(time.Millisecond), slices.Max(took).Round(time.Millisecond))
}

// officeTTL is short, so that the test is.
const officeTTL = 2 * time.Second

// An office is an election with its candidates, and the answers that they give.
type office struct {
	t          *testing.T
	candidates []*officeCandidate
	background sync.WaitGroup
	ended      chan struct{}

	mu      sync.Mutex
	answers int                 // of 200
	first   map[int64]time.Time // when the first 200 of a term was received
	leader  map[int64]*officeCandidate
	newest  int64
	latest  time.Time // when the last 200 of the newest term was received
}

// An officeCandidate is a process that is started again whenever it has ended.
type officeCandidate struct {
	number int
	proxy  *faultproxy.Proxy

	mu   sync.Mutex
	cmd  *exec.Cmd
	base string // URL of its page
}

// start starts the process of a candidate, and starts it again when it ends.
func (o *office) start(c *officeCandidate) {
	args := []string{"elect", "office", "--store", "redis://" + c.proxy.Addr(), "--ttl", officeTTL.String(), "--http", "127.0.0.1:0"}
	if c.number == 0 {
		args = append(args, "--", "sleep", "1000")
	}
	cmd := exec.Command("holdfast", args...)
	messages, err := cmd.StderrPipe()
	if err == nil {
		err = cmd.Start()
	}
	if err != nil {
		o.t.Error(err)
		return
	}
	c.mu.Lock()
	c.cmd, c.base = cmd, ""
	c.mu.Unlock()
	o.background.Go(func() {
		for lines := bufio.NewScanner(messages); lines.Scan(); {
			if match := addressLine.FindStringSubmatch(lines.Text()); match != nil {
				c.mu.Lock()
				c.base = match[1]
				c.mu.Unlock()
			}
		}
		_ = cmd.Wait() // it was killed, or has lost its lock
		select {
		case <-o.ended:
		default:
			o.start(c)
		}
	})
}

var addressLine = regexp.MustCompile(`^holdfast: (http://\S+)/leader tells`)

// signal sends a signal to the process of a candidate, and to its supervisor if it has one.
func (c *officeCandidate) signal(sig syscall.Signal) {
	c.mu.Lock()
	defer c.mu.Unlock()
	pid := c.cmd.Process.Pid
	lists, _ := filepath.Glob(fmt.Sprintf("/proc/%d/task/*/children", pid)) // none if it has ended
	_ = syscall.Kill(pid, sig)
	for _, list := range lists {
		children, _ := os.ReadFile(list)
		for child := range strings.FieldsSeq(string(children)) {
			if pid, err := strconv.Atoi(child); err == nil {
				_ = syscall.Kill(pid, sig)
			}
		}
	}
}

func (o *office) end() {
	close(o.ended)
	for _, c := range o.candidates {
		c.signal(syscall.SIGKILL)
	}
	o.background.Wait()
}

// askForever asks a candidate, one request after the other, until the end.
func (o *office) askForever(c *officeCandidate) {
	client := &http.Client{Transport: &http.Transport{}, Timeout: time.Minute}
	defer client.CloseIdleConnections()
	for {
		select {
		case <-o.ended:
			return
		case <-time.After(2 * time.Millisecond):
		}
		c.mu.Lock()
		base := c.base
		c.mu.Unlock()
		if base == "" {
			continue
		}
		sent := time.Now()
		answer, err := client.Get(base + "/leader")
		if err != nil {
			continue // it was killed
		}
		body, err := io.ReadAll(answer.Body)
		_ = answer.Body.Close()
		if err != nil {
			continue
		}
		var told struct {
			Leading bool
			Holder  string
			Token   int64
		}
		if err := json.Unmarshal(body, &told); err != nil || told.Leading != (answer.StatusCode == 200) || told.Leading && (told.Token == 0 || told.Holder == "") {
			o.t.Errorf("%d with %q: %v", answer.StatusCode, body, err)
		}
		if told.Leading {
			o.hear(c, told.Token, sent, time.Now())
		}
	}
}

// hear takes note of a 200.
func (o *office) hear(c *officeCandidate, token int64, sent, received time.Time) {
	o.mu.Lock()
	defer o.mu.Unlock()
	o.answers++
	if o.leader[token] == nil {
		o.leader[token], o.first[token] = c, received
	}
	if o.leader[token] != c {
		o.t.Errorf("candidates %d and %d lead under one token, %d", o.leader[token].number, c.number, token)
	}
	for other, at := range o.first {
		if other > token && at.Before(sent) {
			o.t.Errorf("candidate %d still led under %d, %v after candidate %d did under %d",
				c.number, token, sent.Sub(at), o.leader[other].number, other)
		}
	}
	if token >= o.newest {
		o.newest, o.latest = token, received
	}
}

// leads returns who led last, and under which token; nil if that was too long ago.
func (o *office) leads() (*officeCandidate, int64) {
	o.mu.Lock()
	defer o.mu.Unlock()
	if time.Since(o.latest) > officeTTL/4 {
		return nil, o.newest
	}
	return o.leader[o.newest], o.newest
}

// depose harms the leader until another leads, and for a while longer, and returns how long that
// took.
func (o *office) depose(fault string) time.Duration {
	o.t.Helper()
	var leader *officeCandidate
	var token int64
	storecheck.Eventually(o.t, "somebody leads", func() bool {
		leader, token = o.leads()
		return leader != nil
	})
	began := time.Now()
	mend := o.harm(leader, fault)
	var took time.Duration
	storecheck.Eventually(o.t, fmt.Sprintf("another leads after %s of candidate %d", fault, leader.number), func() bool {
		next, newer := o.leads()
		took = time.Since(began)
		return next != nil && newer > token
	})
	time.Sleep(officeTTL/2 + rand.N(officeTTL/4))
	mend()
	return took
}

func (o *office) harm(c *officeCandidate, fault string) (mend func()) {
	switch fault {
	case "kill":
		c.signal(syscall.SIGKILL)
		return func() {}
	case "stop":
		c.signal(syscall.SIGSTOP)
		return func() { c.signal(syscall.SIGCONT) }
	}
	c.proxy.Hold(faultproxy.Up)
	c.proxy.Hold(faultproxy.Down)
	return func() {
		c.proxy.Reset()
		c.proxy.Pass(faultproxy.Up)
		c.proxy.Pass(faultproxy.Down)
	}
}
