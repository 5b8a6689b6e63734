//go:build unix

package redisstore

import (
	"context"
	"fmt"
	"math/rand/v2"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/holdfast-go/holdfast/driver"
	"github.com/holdfast-go/holdfast/internal/servers"
)

// TestUsualHandOverIsTheGeneralOne: a release with the straight code of the usual hand-over
// replies, changes and sends what it does without, in random states of one lock or two.
func TestUsualHandOverIsTheGeneralOne(t *testing.T) {
	t.Parallel()
	general := newScript(1, 1, beforeLua, ownerLua, fastReleaseLua, leaveOthersLua,
		guardLua, replicasLua, conditionsLua, slowLua, reacquireLua, releaseLua)
	client := redis.NewClient(&redis.Options{Addr: servers.StartRedis(t).Addr})
	t.Cleanup(func() { _ = client.Close() })
	listener := client.Subscribe(t.Context(), noticeChannels("L1", "L2")...)
	t.Cleanup(func() { _ = listener.Close() })
	for range 2 {
		if _, err := listener.Receive(t.Context()); err != nil { // It has subscribed.
			t.Fatal(err)
		}
	}
	seed := rand.Uint64()
	rng := rand.New(rand.NewPCG(seed, 0))
	admitted := 0
	for range 1500 {
		state := randomQueues(rng)
		want := state.run(t, client, listener, general)
		got := state.run(t, client, listener, releaseScript)
		if got != want {
			t.Fatalf("seed %d:\n%s\nthe general code:\n%s\nwith the usual hand-over:\n%s", seed, state, want, got)
		}
		if strings.Contains(got, "message ") && !strings.Contains(got, "message 0") {
			admitted++
		}
	}
	if admitted < 300 {
		t.Errorf("only %d of the states have a hand-over", admitted)
	}
}

func noticeChannels(ids ...string) []string {
	for i, id := range ids {
		ids[i] = DefaultPrefix + noticesSuffix + id
	}
	return ids
}

// A queueState is a state of a server as commands, and a release in it.
type queueState struct {
	commands [][]any
	release  []any // the keys and arguments, from the number of keys on
	locks    int
}

func (s *queueState) String() string {
	var lines []string
	for _, command := range s.commands {
		lines = append(lines, fmt.Sprintf("%q", command))
	}
	return strings.Join(append(lines, fmt.Sprintf("release %q", s.release)), "\n")
}

func randomQueues(rng *rand.Rand) *queueState {
	pick := func(choices ...string) string { return choices[rng.IntN(len(choices))] }
	rarely := func(usual string, others ...string) string {
		if rng.IntN(3) > 0 {
			return usual
		}
		return pick(others...)
	}
	s := &queueState{locks: 1 + rng.IntN(4)/3}
	add := func(command ...any) { s.commands = append(s.commands, command) }
	now := time.Now()
	counter := fmt.Sprint(now.Add(-time.Minute).UnixMicro())
	if s.locks == 1 { // Of two, another may get the last token.
		counter = rarely(counter, "", "text", "12.5", "-3", "5000000000000000",
			fmt.Sprint(int64(driver.MaxToken)), fmt.Sprint(int64(driver.MaxToken)-1))
	}
	if counter != "" {
		add("SET", "lock:"+counterSuffix, counter)
	}
	if rng.IntN(10) == 0 {
		add("ZADD", "lock:"+aheadSuffix, fmt.Sprint(now.Add(2*time.Hour).UnixMicro()), "lock:"+pick("a", "c"))
	}
	var owners, keeps []any
	keys := []any{"lock:" + counterSuffix, "lock:" + aheadSuffix, "lock:" + queuesSuffix}
	for _, name := range []string{"a", "b"}[:s.locks] {
		lock, owner := "lock:"+name, "owner-"+name+"\n"
		keys, owners, keeps = append(keys, lock), append(owners, owner), append(keeps, rarely("0", "5000"))
		value := rarely("owner-"+name+markSuffix+"\n", "", owner, "another"+markSuffix+"\n", "another\n")
		if value != "" {
			token := now.Add(-time.Minute).UnixMicro()
			add("SET", lock, fmt.Sprintf("%s%d\n%d\n%d\nholder", value, token, token/1e6, token%1e6), "PX", 60000)
		}
		if rng.IntN(10) == 0 {
			add("HSET", "lock:\x1finterests\x1f"+lock, "interested\n", fmt.Sprintf("%d PL1", now.Add(time.Minute).UnixMilli()))
		}
		for i := range rng.IntN(4) {
			member := fmt.Sprintf("place-%s-%d\n", name, i)
			position := now.UnixMicro() + int64(i)
			if rng.IntN(10) == 0 {
				position += 1 << 52 // set aside
			}
			add("ZADD", "lock:\x1fqueue\x1f"+lock, position, member)
			ends := now.Add(time.Minute)
			if rng.IntN(6) == 0 {
				ends = now.Add(-time.Second)
			}
			if rng.IntN(10) > 0 {
				add("HSET", "lock:\x1fplaces\x1f"+lock, member, fmt.Sprintf("%d %s%s %s %s%s\nwaiter-%d",
					ends.UnixMilli(), rarely("P", "p", "S", "X"), rarely("L1", "L2", "gone"), rarely("1", "0", "5"),
					rarely("0", fmt.Sprint(now.Add(time.Second).UnixMicro())), rarely("", " -1 0", " 3 1"), i))
			}
		}
	}
	add("SET", "lock:"+queuesSuffix, "")
	s.release = append(append(append([]any{len(keys)}, keys...), "3"), append(owners, keeps...)...)
	return s
}

// run makes the state anew, runs the release, and returns its reply, what it has left, and the
// messages, without what depends on the moment.
func (s *queueState) run(t *testing.T, client *redis.Client, listener *redis.PubSub, script *script) string {
	t.Helper()
	ctx := t.Context()
	pipe := client.Pipeline()
	pipe.FlushAll(ctx)
	for _, command := range s.commands {
		pipe.Do(ctx, command...)
	}
	if _, err := pipe.Exec(ctx); err != nil {
		t.Fatal(err, s)
	}
	text, _ := script.source()
	reply, err := client.Do(ctx, append([]any{"EVAL", text}, s.release...)...).Result()
	if all, same := reply.(int64); same {
		reply = slices.Repeat([]any{all}, s.locks)
	}
	out := []string{fmt.Sprint("reply ", reply, " ", err)}
	const fence = "fence"
	if err := client.Publish(ctx, noticeChannels("L1")[0], fence).Err(); err != nil {
		t.Fatal(err)
	}
	if err := client.Publish(ctx, noticeChannels("L2")[0], fence).Err(); err != nil {
		t.Fatal(err)
	}
	for fences := 0; fences < 2; {
		select {
		case m := <-listener.Channel():
			if m.Payload == fence {
				fences++
			} else {
				out = append(out, fmt.Sprintf("message %q to %q", m.Payload, m.Channel))
			}
		case <-ctx.Done():
			t.Fatal(ctx.Err())
		}
	}
	out = append(out, dumpKeys(t, ctx, client)...)
	for i := range out {
		out[i] = ofTheMoment.ReplaceAllString(out[i], "now")
	}
	slices.Sort(out) // The order of two locks is not that of the general code.
	return strings.Join(out, "\n")
}

// ofTheMoment matches tokens of the server's clock, and the seconds and microseconds of a hold.
var ofTheMoment = regexp.MustCompile(`1[78]\d{14}|1\.[78]\d+e\+15|1[78]\d{8}\\n\d{1,6}`)

func dumpKeys(t *testing.T, ctx context.Context, client *redis.Client) (lines []string) {
	t.Helper()
	keys, err := client.Keys(ctx, "*").Result()
	if err != nil {
		t.Fatal(err)
	}
	slices.Sort(keys)
	for _, key := range keys {
		var content any
		switch kind := client.Type(ctx, key).Val(); kind {
		case "string":
			content = client.Get(ctx, key).Val()
		case "hash":
			content = client.HGetAll(ctx, key).Val()
		case "zset":
			content = client.ZRangeWithScores(ctx, key, 0, -1).Val()
		default:
			content = kind
		}
		left := client.PTTL(ctx, key).Val()
		if left > 0 {
			left = left.Round(5 * time.Second)
		}
		lines = append(lines, fmt.Sprintf("%q %v: %q", key, left, fmt.Sprint(content)))
	}
	return lines
}
