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
	if len(args) == 2 && args[0] == Argument {
		return servePart(ctx, args[1], in, out)
	}
	o, err := parse(args, notes)
	if err != nil {
		return err
	}
	report, err := measure(ctx, o, notes)
	if err != nil {
		return err
	}
	return errors.Join(o.print(ctx, out, report), report.verdict())
}

// servePart is what this program is as a part of the benchmark.
func servePart(ctx context.Context, name string, in io.Reader, out io.Writer) error {
	// A part ends when its parent closes its input, which does so on a signal too.
	ctx = context.WithoutCancel(ctx)
	switch name {
	case "mongodb":
		return ServeDev(ctx, in, out)
	case "writer":
		return ServeRemote(ctx, in, out)
	case "etcd":
		return ServeEtcd(ctx, in, out)
	case "door":
		return ServeDoor(ctx, in, out)
	case "node":
		return serveNode(ctx, in, out)
	case "contender":
		return serveContender(ctx, in, out, contenders())
	}
	return fmt.Errorf("no part %q", name)
}
