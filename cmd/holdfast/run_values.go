package main

import (
	"errors"
	"time"

	"github.com/spf13/pflag"

	"github.com/holdfast-go/holdfast/internal/supervise"
)

// waitForever is the waitLimit without a limit.
const waitForever waitLimit = -1

// A waitLimit is the value of --wait.
type waitLimit time.Duration

func (p *waitLimit) Set(text string) error {
	if text == "forever" {
		*p = waitForever
		return nil
	}
	d, err := parseDuration(text)
	if err != nil || d < 0 {
		return errors.New(`want a duration such as "30s", "0" or "forever"; a number alone is seconds`)
	}
	*p = waitLimit(d)
	return nil
}

func (p *waitLimit) String() string {
	if *p == waitForever {
		return "forever"
	}
	return time.Duration(*p).String()
}

func (p *waitLimit) Type() string { return "duration" }

// resolveTry reports whether a single attempt is made for the lock, given --try and --wait.
func resolveTry(flags *pflag.FlagSet, try bool, wait waitLimit) (bool, error) {
	if flags.Changed("try") && flags.Changed("wait") {
		return false, usageError(errors.New("--try and --wait exclude each other"), "one of them")
	}
	return try && !flags.Changed("wait") || wait == 0, nil
}

// A lossPolicy is the value of --on-lost.
type lossPolicy supervise.Policy

var lossPolicies = map[string]supervise.Policy{
	"kill":   supervise.Kill,
	"term":   supervise.Term,
	"ignore": supervise.Ignore,
}

func (p *lossPolicy) Set(text string) error {
	value, ok := lossPolicies[text]
	if !ok {
		return errors.New("want kill, term or ignore")
	}
	*p = lossPolicy(value)
	return nil
}

func (p *lossPolicy) String() string {
	for text, value := range lossPolicies {
		if lossPolicy(value) == *p {
			return text
		}
	}
	return ""
}

func (p *lossPolicy) Type() string { return "policy" }
