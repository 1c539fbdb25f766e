package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"maps"
	"os"
	"os/signal"
	"syscall"

	"github.com/mongostream/streamer/cmd/bench/contender"
	"github.com/mongostream/streamer/cmd/bench/gateways"
	"github.com/mongostream/streamer/cmd/bench/moves"
	"github.com/mongostream/streamer/cmd/bench/part"
	"github.com/mongostream/streamer/cmd/bench/server"
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
	if len(args) == 2 && args[0] == part.Argument {
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
		return server.ServeDev(ctx, in, out)
	case "writer":
		return server.ServeRemote(ctx, in, out)
	case "etcd":
		return server.ServeEtcd(ctx, in, out)
	case "door":
		return server.ServeDoor(ctx, in, out)
	case moves.Node:
		return moves.ServeNode(ctx, in, out)
	case "contender":
		contenders := contender.All()
		maps.Copy(contenders, gateways.All())
		maps.Copy(contenders, moves.All())
		return contender.Serve(ctx, in, out, contenders)
	}
	return fmt.Errorf("no part %q", name)
}
