// Command beam scores files of rollouts as one batch, as the command bench score does,
// with Apache Beam: on one machine by prism, Beam's own runner, or by any runner that
// takes pipelines of other languages.
//
//	go run . -o scored rollouts/*.jsonl
//	go run . -o /shared/scored --runner=universal --endpoint=flink:8099 /shared/rollouts/*.jsonl
//
// Files are named by paths that are the same on all workers.
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"os"

	"github.com/apache/beam/sdks/v2/go/pkg/beam"
	"github.com/apache/beam/sdks/v2/go/pkg/beam/runners"
	_ "github.com/apache/beam/sdks/v2/go/pkg/beam/runners/prism"
	"github.com/seed621a2839/reweight/score"
)

func main() {
	folder := flag.String("o", "", "write weights and advantages of each file to this `folder`")
	signal := flag.String("signal", score.Default.ActFocus.Signal.String(), "`name` of ActFocus's signal: energy, ref_entropy, surprisal or log_ratio")
	flag.Parse()
	beam.Init() // does not return in a worker's process
	if err := run(*folder, *signal, flag.Args()); err != nil {
		fmt.Fprintln(os.Stderr, "beam:", err)
		os.Exit(2)
	}
}

func run(folder, signal string, files []string) error {
	if folder == "" || len(files) == 0 {
		return errors.New("want -o FOLDER and the names of files")
	}
	opt := score.Default
	if err := opt.ActFocus.Signal.UnmarshalText([]byte(signal)); err != nil {
		return err
	}
	if err := os.MkdirAll(folder, 0o777); err != nil {
		return err
	}
	if *runners.Runner == "" {
		*runners.Runner = "prism"
	}
	_, err := beam.Run(context.Background(), *runners.Runner, pipeline(files, folder, opt))
	return err
}
