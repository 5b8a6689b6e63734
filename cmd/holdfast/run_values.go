package main

import (
	"errors"
	"time"

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
