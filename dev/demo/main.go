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
	if err := command(ctx, os.Args[1:], os.Stdout, os.Stderr); err != nil && !errors.Is(err, flag.ErrHelp) {
		fmt.Fprintln(os.Stderr, "demo:", err)
		os.Exit(1) //nolint:gocritic // stop has nothing left to undo
	}
}

func command(ctx context.Context, args []string, out, notes io.Writer) error {
	if len(args) > 0 && args[0] == "parts" {
		return partsCommand(ctx, args[1:], out)
	}
	isAgain := len(args) == 3 && args[2] == againArgument
	if (len(args) == 2 || isAgain) && args[0] == "node" {
		return nodeCommand(ctx, args[1], isAgain, out, notes)
	}
	if len(args) == 1 && args[0] == "subscriber" {
		return subscriberCommand(ctx)
	}
	d, err := parse(args, out, notes)
	if err != nil {
		return err
	}
	return d.run(ctx)
}
