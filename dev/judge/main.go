package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"os"
	"os/signal"
	"syscall"
	"time"
)

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	wrong, err := run(ctx, os.Args[1:], os.Stdout)
	stop()
	switch {
	case err != nil && !errors.Is(err, flag.ErrHelp):
		fmt.Fprintln(os.Stderr, "judge:", err)
		os.Exit(2)
	case wrong:
		os.Exit(1)
	}
}

func run(ctx context.Context, args []string, out io.Writer) (wrong bool, err error) {
	s, err := readFlags(args)
	if err != nil {
		return false, err
	}
	c, err := newCluster(ctx, s)
	if err != nil {
		return false, err
	}
	j := &judge{settings: s, cluster: c, out: out, judged: make(map[string]int), found: make(map[string]map[string]int)}
	fmt.Fprintf(out, "judge: seed %d, %d nodes, MongoDB %s, full_document %s, page_size %d, credit_events %d, rescan rate %d\n",
		s.seed, s.nodes, s.release, s.full, c.page, c.credit, c.rate)
	defer func() {
		for _, r := range j.readers {
			r.stop()
		}
		for _, line := range c.close() {
			j.count("node", line)
		}
		j.report()
		wrong = len(j.found) > 0
	}()
	if err := j.begin(ctx); err != nil {
		return false, err
	}
	for round := 1; round == 1 || time.Since(c.begun)+writing < s.length; round++ {
		if err := j.round(ctx, round); err != nil {
			return false, err
		}
	}
	return false, nil
}
