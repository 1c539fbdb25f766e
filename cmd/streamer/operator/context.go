package operator

import (
	"cmp"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"syscall"
	"text/tabwriter"

	"github.com/spf13/cobra"

	"github.com/mongostream/streamer/fault"
	"github.com/mongostream/streamer/internal/config"
)

// A nodeContext is how a node or cluster is reached: an address and the paths of files, no secrets.
type nodeContext struct {
	Address    string `json:"address"`
	TokenFile  string `json:"token_file,omitempty"`
	CAFile     string `json:"ca_file,omitempty"`
	CertFile   string `json:"cert_file,omitempty"`
	KeyFile    string `json:"key_file,omitempty"`
	ServerName string `json:"server_name,omitempty"`
}

// A contextFile has the contexts of a user by their names, and the default one.
type contextFile struct {
	Current  string                  `json:"current,omitempty"`
	Contexts map[string]*nodeContext `json:"contexts"`
}

// contextPath is where contexts are kept.
func contextPath() (string, error) {
	dir := os.Getenv("XDG_CONFIG_HOME")
	if !filepath.IsAbs(dir) { // the specification says that others are ignored
		home, err := os.UserHomeDir()
		if err != nil {
			return "", err
		}
		dir = filepath.Join(home, ".config")
	}
	return filepath.Join(dir, "streamer", "contexts.json"), nil
}

// readContexts reads the contexts; without a file, or a home, there are none. A file that others
// own or may write or replace is refused, because it decides which server gets a token.
func readContexts() (contextFile, error) {
	contexts := contextFile{Contexts: map[string]*nodeContext{}}
	path, err := contextPath()
	if err != nil {
		return contexts, nil
	}
	text, err := os.ReadFile(path)
	if errors.Is(err, fs.ErrNotExist) {
		return contexts, nil
	}
	info, errInfo := os.Stat(path)
	dir, errDir := os.Stat(filepath.Dir(path))
	if err := errors.Join(err, errInfo, errDir); err != nil {
		return contexts, fault.Newf(fault.CommandBadArgument, "read contexts: %w", err)
	}
	if info.Mode().Perm()&0o022 != 0 {
		return contexts, fault.Newf(fault.CommandBadArgument, "read contexts: others may write %s, which says to whom a token is shown: chmod 600 it", path)
	}
	if dir.Mode().Perm()&0o022 != 0 {
		return contexts, fault.Newf(fault.CommandBadArgument, "read contexts: others may replace %s, which says to whom a token is shown: chmod 700 its folder", path)
	}
	if owner, ok := info.Sys().(*syscall.Stat_t); ok && owner.Uid != 0 && int(owner.Uid) != os.Geteuid() {
		return contexts, fault.Newf(fault.CommandBadArgument, "read contexts: %s, which says to whom a token is shown, belongs to another user: chown it", path)
	}
	if err := json.Unmarshal(text, &contexts); err != nil {
		return contexts, fault.Newf(fault.CommandBadArgument, "read contexts: %s: %w", path, err)
	}
	if contexts.Contexts == nil {
		contexts.Contexts = map[string]*nodeContext{}
	}
	maps.DeleteFunc(contexts.Contexts, func(_ string, c *nodeContext) bool { return c == nil })
	return contexts, nil
}

// write replaces the file, which only its owner may read.
func (f contextFile) write() error {
	path, err := contextPath()
	if err != nil {
		return fault.Newf(fault.CommandBadArgument, "write contexts: %w", err)
	}
	text, err := json.MarshalIndent(f, "", "  ")
	if err == nil {
		err = os.MkdirAll(filepath.Dir(path), 0o700)
	}
	if err != nil {
		return fmt.Errorf("write contexts: %w", err)
	}
	next, err := os.CreateTemp(filepath.Dir(path), "contexts") // mode 0600
	if err != nil {
		return fmt.Errorf("write contexts: %w", err)
	}
	_, err = next.Write(append(text, '\n'))
	if err = errors.Join(err, next.Close()); err == nil {
		err = os.Rename(next.Name(), path)
	}
	if err != nil {
		_ = os.Remove(next.Name())
		return fmt.Errorf("write contexts: %w", err)
	}
	return nil
}

// named returns the context that from has named.
func (f contextFile) named(name, from string) (*nodeContext, error) {
	if found := f.Contexts[name]; found != nil {
		return found, nil
	}
	return nil, fault.Newf(fault.CommandBadArgument, "%s: there is no context %q%s", from, name, config.Suggestion(name, slices.Collect(maps.Keys(f.Contexts))))
}

func contextCommand() *cobra.Command {
	cmd := group("context", "Keep names for nodes and clusters that commands ask",
		contextAdd(), contextUse(), contextList(), contextRemove())
	cmd.Long = `Keep names for nodes and clusters that commands ask: an address with the files of token, authorities and certificate. They are in
$XDG_CONFIG_HOME/streamer/contexts.json (by default ~/.config), which only you can read. It holds paths and no secrets.

A command asks the node that the first of these names:
  1. --address, or the context of --context
  2. http.listen of the configuration of -f
  3. the variable STREAMER_ADDRESS
  4. the context of the variable STREAMER_CONTEXT
  5. the current context (streamer context use)
  6. http.listen of the configuration in the environment
  7. the default, 127.0.0.1:8080
The token and the certificates of a context go to its own address only.

  streamer context add production --address https://node-1:8080 --ca-file ca.crt --token-file token
  streamer context use production
  streamer status`
	return cmd
}

func contextAdd() *cobra.Command {
	var c nodeContext
	cmd := &cobra.Command{
		Use: "add NAME --address ADDRESS", Short: "Add a context, or replace it; the first one is used at once", Args: Args(cobra.ExactArgs(1)),
		RunE: func(_ *cobra.Command, args []string) error {
			if _, err := parseAddress("--address", c.Address); err != nil {
				return err
			}
			if args[0] == "" {
				return fault.Newf(fault.CommandBadArgument, "a context needs a name")
			}
			for _, path := range []*string{&c.TokenFile, &c.CAFile, &c.CertFile, &c.KeyFile} {
				absolute, err := filepath.Abs(*path)
				if err != nil {
					return fmt.Errorf("add context: %w", err)
				}
				if *path != "" {
					*path = absolute
				}
			}
			return changeContexts(func(f *contextFile) error {
				f.Contexts[args[0]] = &c
				f.Current = cmp.Or(f.Current, args[0])
				return nil
			})
		},
	}
	flags := cmd.Flags()
	flags.StringVar(&c.Address, "address", "", "HTTP address of a node")
	flags.StringVar(&c.TokenFile, "token-file", "", "file of the bearer token to show")
	flags.StringVar(&c.CAFile, "ca-file", "", "PEM file of the authorities that the node's certificate must come from")
	flags.StringVar(&c.CertFile, "cert-file", "", "PEM file of a client certificate to show, the leaf first")
	flags.StringVar(&c.KeyFile, "key-file", "", "PEM file of the client certificate's key")
	flags.StringVar(&c.ServerName, "server-name", "", "name that the node's certificate must have, where the address has another one")
	cmd.MarkFlagsRequiredTogether("cert-file", "key-file")
	return cmd
}

// changeContexts reads, changes and writes the contexts.
func changeContexts(change func(*contextFile) error) error {
	contexts, err := readContexts()
	if err == nil {
		err = change(&contexts)
	}
	if err != nil {
		return err
	}
	return contexts.write()
}

func contextUse() *cobra.Command {
	return &cobra.Command{
		Use: "use NAME", Short: "Use a context by default", Args: Args(cobra.ExactArgs(1)), ValidArgsFunction: completeContexts,
		RunE: func(_ *cobra.Command, args []string) error {
			return changeContexts(func(f *contextFile) error {
				_, err := f.named(args[0], "use")
				f.Current = args[0]
				return err
			})
		},
	}
}

func contextRemove() *cobra.Command {
	return &cobra.Command{
		Use: "remove NAME", Short: "Remove a context", Args: Args(cobra.ExactArgs(1)), ValidArgsFunction: completeContexts,
		RunE: func(_ *cobra.Command, args []string) error {
			return changeContexts(func(f *contextFile) error {
				if _, err := f.named(args[0], "remove"); err != nil {
					return err
				}
				delete(f.Contexts, args[0])
				if f.Current == args[0] {
					f.Current = ""
				}
				return nil
			})
		},
	}
}

func contextList() *cobra.Command {
	var output string
	cmd := &cobra.Command{
		Use: "list", Short: "List the contexts; the current one has a star", Args: Args(cobra.NoArgs),
		RunE: func(cmd *cobra.Command, _ []string) error {
			if err := CheckOutput(output); err != nil {
				return err
			}
			contexts, err := readContexts()
			if err != nil {
				return err
			}
			return printResult(cmd.OutOrStdout(), output, contexts, func(t *tabwriter.Writer) {
				if len(contexts.Contexts) == 0 {
					fmt.Fprintln(t, "No contexts.")
					return
				}
				fmt.Fprintln(t, "\tCONTEXT\tADDRESS\tTOKEN FILE\tCA FILE\tCERT FILE")
				for _, name := range slices.Sorted(maps.Keys(contexts.Contexts)) {
					mark := ""
					if name == contexts.Current {
						mark = "*"
					}
					c := contexts.Contexts[name]
					fmt.Fprintf(t, "%s\t%s\t%s\t%s\t%s\t%s\n", mark, printable(name), printable(c.Address), orDash(printable(c.TokenFile)), orDash(printable(c.CAFile)), orDash(printable(c.CertFile)))
				}
			})
		},
	}
	OutputFlag(cmd, &output)
	return cmd
}

func completeContexts(*cobra.Command, []string, string) ([]string, cobra.ShellCompDirective) {
	contexts, err := readContexts()
	if err != nil {
		return nil, cobra.ShellCompDirectiveNoFileComp
	}
	return slices.Sorted(maps.Keys(contexts.Contexts)), cobra.ShellCompDirectiveNoFileComp
}
