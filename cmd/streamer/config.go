package main

import (
	"fmt"
	"os"

	"github.com/spf13/cobra"

	"github.com/mongostream/streamer/internal/config"
)

func configCommand() *cobra.Command {
	cmd := &cobra.Command{Use: "config", Short: "Check the configuration"}
	var file string
	check := &cobra.Command{
		Use:   "check",
		Short: "Check a configuration file and the environment, without connecting to anything",
		Args:  cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			if _, err := config.Load(file, os.Environ()); err != nil {
				return err
			}
			_, err := fmt.Fprintln(cmd.OutOrStdout(), "configuration ok")
			return err
		},
	}
	check.Flags().StringVarP(&file, "file", "f", "", "configuration file; without one, the defaults and the environment")
	cmd.AddCommand(check)
	return cmd
}
