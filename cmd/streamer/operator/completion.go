package operator

import (
	"context"
	"net/http"
	"slices"
	"strings"
	"time"
	"unicode"

	"github.com/spf13/cobra"

	"github.com/mongostream/streamer/internal/admin"
)

// completionTimeout is how long a node may take to answer while somebody waits for names.
const completionTimeout = time.Second

// completeFrom completes names that a node tells; without an answer there are none. Only the first
// argument has a name, or the value of a flag.
func completeFrom(node *nodeClient, names func(context.Context, *nodeClient) ([]string, error)) cobra.CompletionFunc {
	return func(cmd *cobra.Command, args []string, _ string) ([]string, cobra.ShellCompDirective) {
		if len(args) > 0 && cmd.ValidArgsFunction != nil {
			return nil, cobra.ShellCompDirectiveNoFileComp
		}
		if file := cmd.Flags().Lookup("file"); file != nil {
			node.file = file.Value.String()
		}
		ctx, cancel := context.WithTimeout(context.Background(), completionTimeout)
		defer cancel()
		found, err := names(ctx, node)
		if err != nil {
			return nil, cobra.ShellCompDirectiveNoFileComp
		}
		return slices.DeleteFunc(found, func(name string) bool { return !harmless(name) }), cobra.ShellCompDirectiveNoFileComp
	}
}

// harmless reports whether a name means nothing else to a shell or to cobra. Scripts of shells may
// expand what they complete.
func harmless(name string) bool {
	return !strings.HasPrefix(name, "-") && !strings.HasPrefix(name, "_activeHelp_") && !strings.ContainsFunc(name, func(r rune) bool {
		return !unicode.IsLetter(r) && !unicode.IsDigit(r) && !strings.ContainsRune("-_./:@+=,%", r)
	})
}

// subscriberNames are the subscribers that a node knows.
func subscriberNames(ctx context.Context, node *nodeClient) (names []string, err error) {
	all, err := readSubscribers(ctx, node)
	if err != nil {
		return nil, err
	}
	for _, s := range all.Subscribers {
		names = append(names, s.Subscriber)
	}
	return names, nil
}

// nodeNames are the nodes that a node knows.
func nodeNames(ctx context.Context, node *nodeClient) (names []string, err error) {
	s, err := readStatus(ctx, node)
	for _, n := range s.Nodes {
		names = append(names, n.Node)
	}
	return names, err
}

// sinkNames are the sinks of a node.
func sinkNames(ctx context.Context, node *nodeClient) (names []string, err error) {
	var list admin.SinkList
	err = node.ask(ctx, http.MethodGet, "v1/sinks", nil, &list)
	for _, s := range list.Sinks {
		names = append(names, s.Name)
	}
	return names, err
}
