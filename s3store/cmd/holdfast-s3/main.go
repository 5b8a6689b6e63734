// Holdfast-s3 is holdfast with the store in S3. Holdfast executes it for --store s3://….
package main

import (
	"github.com/holdfast-go/holdfast/internal/command"
	_ "github.com/holdfast-go/holdfast/s3store" // s3:
)

func main() { command.Main() }
