package main

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"text/tabwriter"
)

// print writes the report in the form that was asked for.
func (o options) print(ctx context.Context, out io.Writer, r *report) error {
	switch o.output {
	case "json":
		if err := json.NewEncoder(out).Encode(r); err != nil {
			return fmt.Errorf("print the report: %w", err)
		}
		return nil
	case "markdown":
		return o.page(ctx, out, r)
	}
	return table(out, r)
}

// table writes a line for each target, which has all that is to be known in short.
func table(out io.Writer, r *report) error {
	w := tabwriter.NewWriter(out, 0, 0, 2, ' ', 0)
	fmt.Fprintln(w, "figure\tof what\tmeasured\twanted\t")
	for name, f := range r.each {
		if f.Void != "" {
			fmt.Fprintf(w, "%s\t%s\tvoid\t\t\n", name, f.Void)
			continue
		}
		for _, t := range f.Targets {
			fmt.Fprintf(w, "%s\t%s\t%.4g\t%s\t%s\n", name, t.What, t.Value, t.Want, t.Verdict())
			name = ""
		}
	}
	if err := w.Flush(); err != nil {
		return fmt.Errorf("print the table: %w", err)
	}
	return nil
}
