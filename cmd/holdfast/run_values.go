package main

import (
	"errors"
	"time"

	"github.com/spf13/pflag"

	"github.com/holdfast-go/holdfast/internal/supervise"
)

// forever is the patience of one who waits however long it takes.
const forever patience = -1

// A patience is the value of --wait.
type patience time.Duration

func (p *patience) Set(text string) error {
	if text == "forever" {
		*p = forever
		return nil
	}
	d, err := time.ParseDuration(text)
	if err != nil || d < 0 {
		return errors.New(`want a duration such as "30s", "0" or "forever"`)
	}
	*p = patience(d)
	return nil
}

func (p *patience) String() string {
	if *p == forever {
		return "forever"
	}
	return time.Duration(*p).String()
}

func (p *patience) Type() string { return "duration" }

// triesOnly reports whether a lock is to be had at once or not at all, given
// --try and --wait.
func triesOnly(flags *pflag.FlagSet, try bool, wait patience) (bool, error) {
	if flags.Changed("try") && flags.Changed("wait") {
		return false, usage(errors.New("--try and --wait exclude each other"), "one of them")
	}
	return try && !flags.Changed("wait") || wait == 0, nil
}

// A policy is the value of --on-lost.
type policy supervise.Policy

var policies = map[string]supervise.Policy{
	"kill":   supervise.Kill,
	"term":   supervise.Term,
	"ignore": supervise.Ignore,
}

func (p *policy) Set(text string) error {
	value, ok := policies[text]
	if !ok {
		return errors.New("want kill, term or ignore")
	}
	*p = policy(value)
	return nil
}

func (p *policy) String() string {
	for text, value := range policies {
		if policy(value) == *p {
			return text
		}
	}
	return ""
}

func (p *policy) Type() string { return "policy" }
