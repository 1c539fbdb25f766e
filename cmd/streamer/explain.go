package main

import (
	"encoding/json"
	"fmt"
	"strings"

	"github.com/spf13/cobra"

	"github.com/mongostream/streamer/fault"
)

func explainCommand() *cobra.Command {
	return &cobra.Command{
		Use:   "explain [CODE]",
		Short: "Explain an error code, or list them all",
		Args:  cobra.MaximumNArgs(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			w := cmd.OutOrStdout()
			if len(args) == 0 {
				for _, e := range fault.Catalogue() {
					if _, err := fmt.Fprintf(w, "%-30s %s\n", e.Code, e.Summary); err != nil {
						return err
					}
				}
				return nil
			}
			e, ok := lookup(args[0])
			if !ok {
				return fmt.Errorf("unknown code %q: `streamer explain` lists all of them", strings.ToUpper(args[0]))
			}
			_, err := fmt.Fprintf(w, "%s: %s\n\nWhat happened: %s\nWhat to do:    %s\n", e.Code, e.Summary, e.Meaning, e.Remedy)
			return err
		},
	}
}

// lookup finds a code by its name, also in lower case, with underscores, or without STRM-.
func lookup(name string) (fault.Entry, bool) {
	code := strings.ReplaceAll(strings.ToUpper(name), "_", "-")
	if e, ok := fault.Lookup(fault.Code(code)); ok {
		return e, true
	}
	return fault.Lookup(fault.Code("STRM-" + code))
}

func versionCommand() *cobra.Command {
	var output string
	cmd := &cobra.Command{
		Use:   "version",
		Short: "Print the version",
		Args:  cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			if output == "json" {
				return json.NewEncoder(cmd.OutOrStdout()).Encode(map[string]string{"version": versionText()})
			}
			_, err := fmt.Fprintln(cmd.OutOrStdout(), "streamer", versionText())
			return err
		},
	}
	cmd.Flags().StringVarP(&output, "output", "o", "", "json")
	return cmd
}
