package main

import (
	"fmt"
	"io"
	"slices"
	"strings"

	"github.com/spf13/cobra"

	"github.com/mongostream/streamer/cmd/streamer/operator"
	"github.com/mongostream/streamer/fault"
	"github.com/mongostream/streamer/internal/config"
)

// An explanation is what explain -o json prints of a code.
type explanation struct {
	Code    fault.Code `json:"code"`
	Summary string     `json:"summary"`
	Meaning string     `json:"meaning"`
	Remedy  string     `json:"remedy"`
	URL     string     `json:"url"`
}

func explainCommand() *cobra.Command {
	var output string
	cmd := &cobra.Command{
		Use:               "explain [CODE]",
		Short:             "Explain an error code, or list them all",
		Args:              operator.Args(cobra.MaximumNArgs(1)),
		ValidArgsFunction: completeCodes,
		RunE: func(cmd *cobra.Command, args []string) error {
			if err := operator.CheckOutput(output); err != nil {
				return err
			}
			w := cmd.OutOrStdout()
			if len(args) == 0 {
				return listCodes(w, output)
			}
			e, ok := lookup(args[0])
			switch {
			case !ok:
				return fault.Newf(fault.CommandBadArgument, "unknown code %q%s (`streamer explain` lists all)", strings.ToUpper(args[0]), similar(args[0]))
			case output == "json":
				return operator.PrintJSON(w, explain(e))
			}
			_, err := fmt.Fprintf(w, "%s: %s\n\nWhat happened: %s\nWhat to do:    %s\nMore:          %s\n", e.Code, e.Summary, e.Meaning, e.Remedy, e.Code.URL())
			return err
		},
	}
	operator.OutputFlag(cmd, &output)
	return cmd
}

// listCodes lists all codes.
func listCodes(w io.Writer, output string) error {
	if output == "json" {
		var all []explanation
		for _, e := range fault.Catalogue() {
			all = append(all, explain(e))
		}
		return operator.PrintJSON(w, all)
	}
	for _, e := range fault.Catalogue() {
		if _, err := fmt.Fprintf(w, "%-30s %s\n", e.Code, e.Summary); err != nil {
			return err
		}
	}
	return nil
}

func explain(e fault.Entry) explanation {
	return explanation{Code: e.Code, Summary: e.Summary, Meaning: e.Meaning, Remedy: e.Remedy, URL: e.Code.URL()}
}

// codePrefix begins every code.
const codePrefix = "STRM-"

// canonical writes a code as the catalogue does: lower case, underscores and no STRM- are taken.
func canonical(name string) string {
	code := strings.ReplaceAll(strings.ToUpper(name), "_", "-")
	return codePrefix + strings.TrimPrefix(code, codePrefix)
}

// lookup finds a code by its name.
func lookup(name string) (fault.Entry, bool) { return fault.Lookup(fault.Code(canonical(name))) }

// longestHint is how many codes of a subject are named.
const longestHint = 8

// similar returns the codes that may be meant: those that start with the text, those that contain
// it as a word, or the one with a similar spelling.
func similar(name string) string {
	code := canonical(name)
	word := strings.TrimPrefix(code, codePrefix)
	var near, all []string
	for _, e := range fault.Catalogue() {
		all = append(all, string(e.Code))
		if word != "" && (strings.HasPrefix(string(e.Code), code) || slices.Contains(strings.Split(string(e.Code), "-")[1:], word)) {
			near = append(near, string(e.Code))
		}
	}
	if len(near) == 0 {
		return config.Suggestion(code, all)
	}
	more := ""
	if len(near) > longestHint {
		more = fmt.Sprintf(", or %d others", len(near)-longestHint)
		near = near[:longestHint]
	}
	return "; did you mean " + strings.Join(near, ", ") + more + "?"
}

// completeCodes completes codes, also in lower case.
func completeCodes(_ *cobra.Command, args []string, typed string) ([]string, cobra.ShellCompDirective) {
	var codes []string
	for _, e := range fault.Catalogue() {
		if len(args) == 0 && strings.HasPrefix(string(e.Code), strings.ToUpper(typed)) {
			codes = append(codes, string(e.Code)+"\t"+e.Summary)
		}
	}
	return codes, cobra.ShellCompDirectiveNoFileComp
}

func versionCommand() *cobra.Command {
	var output string
	cmd := &cobra.Command{
		Use:   "version",
		Short: "Print the version",
		Args:  operator.Args(cobra.NoArgs),
		RunE: func(cmd *cobra.Command, _ []string) error {
			if err := operator.CheckOutput(output); err != nil {
				return err
			}
			if output == "json" {
				return operator.PrintJSON(cmd.OutOrStdout(), map[string]string{"version": versionText()})
			}
			_, err := fmt.Fprintln(cmd.OutOrStdout(), "streamer", versionText())
			return err
		},
	}
	operator.OutputFlag(cmd, &output)
	return cmd
}
