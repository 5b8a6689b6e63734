// Worker-pool drains one list of jobs with three processes, and each job is done once: a worker
// that finds a job done goes on to the next one. If a worker crashes, its job is free after the
// TTL, and a worker that waits for it does it.
//
//	go run ./examples/worker-pool
//	HOLDFAST_STORE=redis://localhost:6379 go run ./examples/worker-pool
package main

import (
	"bytes"
	"cmp"
	"context"
	"crypto/rand"
	"fmt"
	"log"
	"os"
	"os/exec"
	"path/filepath"
	"time"

	"github.com/holdfast-go/holdfast"
	_ "github.com/holdfast-go/holdfast/filestore"
	"github.com/holdfast-go/holdfast/once"
	_ "github.com/holdfast-go/holdfast/redisstore"
)

const (
	workers = 3
	jobs    = 20
)

func main() {
	run := startWorkers
	if os.Getenv("LIST") != "" {
		run = runWorker
	}
	if err := run(); err != nil {
		log.Fatal(err)
	}
}

// startWorkers starts the workers and counts the jobs that they have done.
func startWorkers() error {
	dir, err := os.MkdirTemp("", "worker-pool")
	if err != nil {
		return err
	}
	defer os.RemoveAll(dir)
	store := cmp.Or(os.Getenv("HOLDFAST_STORE"), "file://"+filepath.ToSlash(dir))
	env := append(os.Environ(), "HOLDFAST_STORE="+store, "LIST="+rand.Text())

	var done [workers]bytes.Buffer
	var pool [workers]*exec.Cmd
	for i := range pool {
		pool[i] = exec.Command(os.Args[0])
		pool[i].Env, pool[i].Stdout, pool[i].Stderr = env, &done[i], os.Stderr
		if err := pool[i].Start(); err != nil {
			return err
		}
	}
	times := 0
	for i, worker := range pool {
		if err := worker.Wait(); err != nil {
			return err
		}
		times += bytes.Count(done[i].Bytes(), []byte("\n"))
	}
	fmt.Printf("%d jobs were done %d times by %d processes\n", jobs, times, workers)
	return nil
}

// runWorker goes through the list, and returns to jobs that were busy for long.
func runWorker() error {
	ctx := context.Background()
	locks, err := holdfast.Open(ctx, os.Getenv("HOLDFAST_STORE"), nil)
	if err != nil {
		return err
	}
	defer locks.Close()
	for left := jobs; left > 0; {
		left = jobs
		for job := range jobs {
			name := fmt.Sprintf("job:%s:%d", os.Getenv("LIST"), job)
			result, err := once.Do(ctx, locks, name, &once.Options{Wait: time.Minute}, func(context.Context) error {
				fmt.Println("resized picture", job)
				return nil
			})
			if err != nil {
				return err
			}
			if result.Verdict != once.Busy {
				left--
			}
		}
	}
	return nil
}
