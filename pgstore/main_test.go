//go:build unix

package pgstore

import (
	"fmt"
	"os"
	"testing"

	"github.com/holdfast-go/holdfast/pgstore/internal/pgtest"
)

func TestMain(m *testing.M) {
	if url := os.Getenv(workerVariable); url != "" {
		if err := work(url); err != nil {
			fmt.Fprintln(os.Stderr, err)
			os.Exit(1)
		}
		return
	}
	pgtest.Main(m)
}
