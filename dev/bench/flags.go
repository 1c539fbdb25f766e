package main

import (
	"flag"
	"fmt"
	"io"
	"slices"
	"strings"
)

// flags are the flags of the command line.
type flags struct {
	scale   scale
	uri     string // empty: a development MongoDB
	output  string
	profile string
	race    string   // empty: all
	attacks []string // of the race tenants
	command string   // the original command line
}

func parse(args []string, notes io.Writer) (flags, error) {
	o := flags{scale: full(), command: strings.Join(append([]string{"bench"}, args...), " ")}
	set := flag.NewFlagSet("bench", flag.ContinueOnError)
	set.SetOutput(notes)
	short := set.Bool("quick", false, "fewer and shorter rounds: some two minutes")
	set.StringVar(&o.output, "o", "", "json or markdown instead of a table")
	set.StringVar(&o.uri, "uri", "", "measure with this MongoDB, in databases called bench_…, instead of the development one")
	set.StringVar(&o.profile, "profile", "", "folder for a CPU profile and one of the allocations of each contender's last round")
	set.StringVar(&o.race, "race", "", "run only this race, and those that it needs: "+strings.Join(raceNames(), ", "))
	known := attackNames()
	attacks := set.String("attacks", "", "of the race tenants, only these attacks, separated by commas: "+strings.Join(known, ", "))
	if err := set.Parse(args); err != nil {
		return o, err
	}
	if o.attacks = known; *attacks != "" {
		o.attacks = strings.Split(*attacks, ",")
	}
	switch unknown := slices.IndexFunc(o.attacks, func(name string) bool { return !slices.Contains(known, name) }); {
	case unknown >= 0:
		return o, fmt.Errorf("unknown attack %q: use some of %s", o.attacks[unknown], strings.Join(known, ", "))
	case set.NArg() > 0:
		return o, fmt.Errorf("unknown argument %q", set.Arg(0))
	case o.race != "" && !slices.Contains(raceNames(), o.race):
		return o, fmt.Errorf("unknown race %q: use one of %s", o.race, strings.Join(raceNames(), ", "))
	case o.output != "" && o.output != "json" && o.output != "markdown":
		return o, fmt.Errorf("unknown output %q: use -o json or -o markdown", o.output)
	}
	if *short {
		o.scale = quick()
	}
	return o, nil
}
