package redisstore

import (
	"context"
	_ "embed" // for the script
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/redis/go-redis/v9"

	"github.com/holdfast-go/holdfast/driver"
)

// The script is sent with EVAL, since no other one has rights to be tried.
//
//go:embed lua/rights.lua
var rightsLua string

// A use of the server is what some of the rights of a user are for.
type use struct {
	lacking  string // what does not work without the rights
	severity driver.Severity
	scripts  []string // commands in scripts
	alone    []string // commands that are sent by themselves
}

// usesOf returns the uses that the store makes of its server. The queue of a cluster has channels
// of hash slots.
func (s *Store) usesOf() []use {
	locks := use{"no lock can be taken", driver.SeverityFailure, []string{
		"get", "getrange", "set", "del", "pttl", "pexpire", "zcard", "time",
	}, []string{"evalsha"}}
	if s.options.RestartGuard > 0 || s.options.MinReplicas > 0 {
		locks.scripts = append(locks.scripts, "info")
	}
	if s.options.MinReplicas > 0 {
		locks.alone = append(locks.alone, "wait")
	}
	queues := use{"waiters try at intervals, and are not served in order", driver.SeverityWarning, []string{
		"exists", "zadd", "zscore", "zrange", "zrem", "hset", "hget", "hdel", "hvals", "hgetall", "publish", "pubsub|numsub",
	}, []string{"subscribe", "ping"}}
	if s.cluster {
		queues.scripts = append(queues.scripts[:10], "spublish", "pubsub|shardnumsub")
		queues.alone[0] = "ssubscribe"
	}
	return []use{
		locks, queues,
		{"requests with a floor fail, as those of a quorum", driver.SeverityWarning, []string{"zadd", "zscore", "zrange", "zremrangebyscore"}, nil},
		{"shared and limited holds are refused", driver.SeverityNote, []string{
			"hset", "hsetnx", "hget", "hmget", "hdel", "hlen", "hgetall", "zrem", "pexpireat",
		}, nil},
		{"locks cannot be listed", driver.SeverityNote, nil, []string{"scan"}},
	}
}

// rightsArgs are the arguments with which a command is tried, if they are not a key alone: key
// stands for that, and channel for a channel. As they are, they change nothing.
var rightsArgs = map[string]string{
	"getrange": "key 0 0", "set": "key v XX", "pexpire": "key 1", "pexpireat": "key 1", "zadd": "key XX 1 m", "zscore": "key m",
	"zrange": "key 0 0", "zremrangebyscore": "key 0 0", "zrem": "key m", "time": "", "info": "server",
	"hset": "key f v", "hsetnx": "key f v", "hget": "key f", "hmget": "key f", "hdel": "key f",
	"publish": "channel m", "spublish": "channel m", "pubsub|numsub": "channel", "pubsub|shardnumsub": "channel",
	"evalsha": "0000000000000000000000000000000000000000 0", "wait": "0 1", "scan": "0 COUNT 1", "ping": "",
}

// examineRights tries the rights of the user to the commands, keys and channels of the store, and
// changes nothing.
func (s *Store) examineRights(ctx context.Context, master redis.UniversalClient) (driver.Finding, error) {
	f := driver.Finding{Check: checkRights, Severity: driver.SeverityOK}
	user := userOf(master)
	lock := s.lockKey("holdfast-doctor/rights")
	tag := s.hashTagOf(lock)
	t := &rightsTrial{s: s, master: master, lock: lock, channel: s.notifier.channelName(tag), refusal: map[string]string{}}
	uses := s.usesOf()
	if err := t.run(ctx, uses, s.counterKey(tag)); err != nil {
		var reply redis.Error
		switch {
		case isRefusal(err):
			f.Severity, f.Found = driver.SeverityFailure, fmt.Sprintf("%s may not run scripts: %s", user, firstLine(err.Error()))
			f.Want, f.Remedy = "the right to run EVAL and EVALSHA", fmt.Sprintf("redis-cli ACL SETUSER %s +eval +evalsha", user)
		case errors.As(err, &reply):
			f.Severity, f.Found = driver.SeverityUnknown, "cannot tell: the server does not run the script that tries them (Redis does from 7.0 on): "+firstLine(err.Error())
			f.Want = "the rights that the documentation of the store names"
		default:
			return f, s.wrapErr(err)
		}
		return f, nil
	}
	var lacking, missing []string
	for _, use := range uses {
		var rights []string
		for _, command := range slices.Concat(use.alone, use.scripts) {
			if right := t.refusal[command]; right != "" {
				rights = append(rights, right)
			}
		}
		if use.severity == driver.SeverityFailure && t.refusal["counter"] != "" {
			rights = append(rights, t.refusal["counter"])
		}
		if len(rights) == 0 {
			continue
		}
		f.Severity = max(f.Severity, use.severity)
		lacking, missing = append(lacking, use.lacking), append(missing, rights...)
	}
	if len(missing) == 0 {
		f.Found = user + " has all rights"
		return f, nil
	}
	slices.Sort(missing)
	rights := strings.Join(slices.Compact(missing), " ")
	f.Found = fmt.Sprintf("%s lacks the rights %s: %s", user, rights, strings.Join(lacking, "; "))
	f.Want, f.Remedy = "all rights that the documentation of the store names", fmt.Sprintf("redis-cli ACL SETUSER %s %s", user, rights)
	return f, nil
}

// userOf returns the name of the user of a client.
func userOf(master redis.UniversalClient) string {
	if client, ok := master.(*redis.Client); ok && client.Options().Username != "" {
		return client.Options().Username
	}
	return "default"
}

// A rightsTrial tries rights at one server.
type rightsTrial struct {
	s             *Store
	master        redis.UniversalClient
	lock, channel string
	refusal       map[string]string // by command: the right that is missing, as in ACL SETUSER, or ""
}

// run tries all commands. Whether the counter may be used, too, is in refusal["counter"].
func (t *rightsTrial) run(ctx context.Context, uses []use, counter string) error {
	var commands []string
	for _, use := range uses {
		commands = append(commands, use.scripts...)
	}
	slices.Sort(commands)
	commands = slices.Compact(commands)
	var tried []any
	for _, command := range commands {
		tried = append(tried, strings.Join(t.words(command), "\n"))
	}
	tried = append(tried, "SET\n"+counter+"\nv\nXX")
	replies, err := withDeadline(t.s, ctx, func(ctx context.Context) ([]string, error) {
		return t.master.Eval(ctx, rightsLua, nil, tried...).StringSlice()
	})
	if err != nil {
		return err
	}
	if len(replies) != len(tried) {
		return fmt.Errorf("the server has answered %d of %d questions", len(replies), len(tried))
	}
	for i, command := range commands {
		t.refusal[command] = t.missing(command, t.lock, replies[i])
	}
	if text := t.missing("set", counter, replies[len(commands)]); text != "+set" {
		t.refusal["counter"] = text
	}
	for _, use := range uses {
		for _, command := range use.alone {
			if err := t.send(ctx, command); err != nil {
				return err
			}
		}
	}
	return nil
}

// words returns a command with arguments.
func (t *rightsTrial) words(command string) []string {
	args, ok := rightsArgs[command]
	if !ok {
		args = "key"
	}
	words := append(strings.Split(command, "|"), strings.Fields(args)...)
	for i, word := range words {
		switch word {
		case "key":
			words[i] = t.lock
		case "channel":
			words[i] = t.channel
		}
	}
	return words
}

// send tries a command by itself.
func (t *rightsTrial) send(ctx context.Context, command string) error {
	_, err := withDeadline(t.s, ctx, func(ctx context.Context) (any, error) {
		if strings.HasSuffix(command, "subscribe") {
			return t.subscribe(ctx, command)
		}
		var words []any
		for _, word := range t.words(command) {
			words = append(words, word)
		}
		return t.master.Do(ctx, words...).Result()
	})
	var reply redis.Error
	if errors.As(err, &reply) {
		t.refusal[command] = t.missing(command, t.lock, reply.Error())
		return nil
	}
	return err
}

// subscribe tries to subscribe to the channel. A client that is of none of the kinds that can makes
// no queues.
func (t *rightsTrial) subscribe(ctx context.Context, command string) (any, error) {
	client, ok := t.master.(*redis.Client)
	if !ok {
		return nil, nil
	}
	pubsub := client.Subscribe(ctx)
	defer pubsub.Close()
	subscribe := pubsub.Subscribe
	if command == "ssubscribe" {
		subscribe = pubsub.SSubscribe
	}
	if err := subscribe(ctx, t.channel); err != nil {
		return nil, err
	}
	return pubsub.ReceiveTimeout(ctx, replyTimeout)
}

// missing returns the right that an error of a command on a key shows to be missing, in the form of
// ACL SETUSER, or "" if it is another error. A server names a command that is not allowed first.
func (t *rightsTrial) missing(command, key, text string) string {
	text = strings.TrimSuffix(errorText(firstLine(text)), ".")
	switch {
	case !isRightsError(text):
		return ""
	case strings.Contains(text, "the channel mentioned"), strings.Contains(text, "the channels used"), strings.HasSuffix(text, " channel"):
		return t.s.rightTo("&", t.channel)
	case strings.Contains(text, "the keys mentioned"), strings.Contains(text, "the keys used"), strings.HasSuffix(text, " key"):
		return t.s.rightTo("~", key)
	}
	return "+" + command
}

// isRightsError reports whether the text of an error is about the rights of the user.
func isRightsError(text string) bool {
	return strings.HasPrefix(text, "NOPERM ") || strings.HasPrefix(text, "ACL failure") || strings.HasPrefix(text, "The user executing the script can't ")
}

// rightTo returns the right to all keys or channels that are like one.
func (s *Store) rightTo(mark, key string) string {
	pattern := escapePattern(s.prefix) + "*"
	if s.cluster && !s.prefixHasTag && strings.HasPrefix(key, "{") {
		pattern = "{*}" + pattern
	}
	return "'" + mark + pattern + "'"
}
