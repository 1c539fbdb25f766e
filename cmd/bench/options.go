package main

import (
	"flag"
	"fmt"
	"io"
	"strings"
)

// options are what the command line says.
type options struct {
	scale   scale
	uri     string // empty: a development MongoDB
	output  string
	profile string
	gateway bool   // measure gateways too
	command string // as it was given
}

func parse(args []string, notes io.Writer) (options, error) {
	o := options{scale: full(), command: strings.Join(append([]string{"bench"}, args...), " ")}
	flags := flag.NewFlagSet("bench", flag.ContinueOnError)
	flags.SetOutput(notes)
	short := flags.Bool("quick", false, "fewer and shorter rounds: less than a minute")
	flags.StringVar(&o.output, "o", "", "json or markdown instead of a table")
	flags.StringVar(&o.uri, "uri", "", "measure with this MongoDB, in databases called bench_…, instead of the development one")
	flags.BoolVar(&o.gateway, "gateways", false, "measure gateways too, which takes some minutes more; with -quick, half a minute")
	flags.StringVar(&o.profile, "profile", "", "folder for a CPU profile and one of the allocations of each contender's last round")
	if err := flags.Parse(args); err != nil {
		return o, err
	}
	switch {
	case flags.NArg() > 0:
		return o, fmt.Errorf("unknown argument %q", flags.Arg(0))
	case o.output != "" && o.output != "json" && o.output != "markdown":
		return o, fmt.Errorf("unknown output %q: use -o json or -o markdown", o.output)
	}
	if *short {
		o.scale = quick()
	}
	return o, nil
}
