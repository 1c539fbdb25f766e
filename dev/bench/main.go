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
)

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	context.AfterFunc(ctx, stop) // a second signal ends the process at once
	if err := command(ctx, os.Args[1:], os.Stdin, os.Stdout, os.Stderr); err != nil {
		if !errors.Is(err, flag.ErrHelp) {
			fmt.Fprintln(os.Stderr, "bench:", err)
		}
		os.Exit(1) //nolint:gocritic // stop has nothing left to undo
	}
}

func command(ctx context.Context, args []string, in io.Reader, out, notes io.Writer) error {
	if len(args) == 2 && args[0] == workerArgument {
		return serveWorker(ctx, args[1], in, out)
	}
	o, err := parse(args, notes)
	if err != nil {
		return err
	}
	if o.profile != "" {
		if err := os.MkdirAll(o.profile, 0o750); err != nil {
			return fmt.Errorf("make the folder of the profiles: %w", err)
		}
	}
	report, err := measure(ctx, o, notes)
	if err != nil {
		return err
	}
	return errors.Join(o.print(ctx, out, report), report.verdict())
}

// serveWorker runs this program as a worker of the benchmark.
func serveWorker(ctx context.Context, name string, in io.Reader, out io.Writer) error {
	// A worker ends when its parent closes its input, which does so on a signal too.
	ctx = context.WithoutCancel(ctx)
	switch name {
	case "mongodb":
		return serveDev(ctx, in, out)
	case "writer":
		return serveRemote(ctx, in, out)
	case "etcd":
		return serveEtcd(ctx, in, out)
	case "proxy":
		return serveProxy(ctx, in, out)
	case "node":
		return serveNode(ctx, in, out)
	case "broker":
		return serveBroker(ctx, in, out)
	case "attackers":
		return serveAttackers(ctx, in, out)
	case "contender":
		return serveContender(ctx, in, out, contenders())
	}
	return fmt.Errorf("no worker %q", name)
}
