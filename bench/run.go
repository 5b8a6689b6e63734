//go:build unix

package main

import (
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"os"
	"testing"
	"time"

	"github.com/holdfast-go/holdfast/bench/internal/contend"
	"github.com/holdfast-go/holdfast/bench/internal/result"
	"github.com/holdfast-go/holdfast/bench/internal/stage"
)

// run measures a scenario: all contenders in each round, on the same servers, in an
// order of the round's own, so that nobody always comes after the same one.
func run(sc scenario, rounds int, span time.Duration, progress io.Writer) (*result.Scenario, error) {
	res := &result.Scenario{
		Name: sc.name, Title: sc.title, Group: sc.group, About: sc.about, Metrics: sc.metrics,
		Date: time.Now().UTC().Truncate(time.Minute), Rounds: rounds,
	}
	for _, k := range sc.kinds {
		res.Contenders = append(res.Contenders, result.Contender{Name: k.Name, Settings: k.Settings, Role: string(k.Role)})
	}
	err := stage.Run(func(tb testing.TB) error {
		s, err := set(tb, sc, span)
		if err != nil {
			return err
		}
		before := result.ReadCPUTime()
		defer func() { res.Stolen = result.ReadCPUTime().Stolen(before) }()
		res.Machine = result.ThisMachine(s.versions())
		for round := range rounds {
			res.Load = append(res.Load, result.LoadAverage())
			order := rand.New(rand.NewPCG(uint64(round), 0)).Perm(len(sc.kinds))
			for _, i := range order {
				k := sc.kinds[i]
				sample, err := s.sample(k, round)
				if err != nil {
					return fmt.Errorf("%s, %s: %w", sc.name, k.Name, err)
				}
				res.Samples = append(res.Samples, sample)
			}
			fmt.Fprintf(progress, "%s: round %d of %d, load %.1f\n", sc.name, round+1, rounds, res.Load[round])
		}
		return nil
	})
	return res, err
}

// sample measures one contender once.
func (s *scene) sample(k contend.Kind, round int) (result.Sample, error) {
	s.clear()
	sample, err := s.scenario.measure(s, k)
	if k.Role != contend.Ours && errors.Is(err, errStuck) {
		fmt.Fprintf(os.Stderr, "%s, %s: %v\n", s.scenario.name, k.Name, err)
		sample, err = result.Sample{Stuck: true}, nil
	}
	sample.Contender, sample.Round = k.Name, round
	return sample, err
}
