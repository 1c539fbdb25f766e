package move

import (
	"cmp"
	"context"
	"encoding/json"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"text/tabwriter"
	"time"

	"mongostream/change"
	"mongostream/cluster/roster"
	"mongostream/handoff/ledger"
	"mongostream/notice"
)

// A List is what moves, what has moved, and what is wished.
type List struct {
	Running []Running `json:"running"`
	// Recent are the last ones that have ended, the newest first, as far as the history of notices reaches.
	Recent  []Recent          `json:"recent"`
	Pinned  map[string]Wished `json:"pinned"`  // by partition
	Drained map[string]Wished `json:"drained"` // by node
}

// A Wished is where a partition is wished to be, empty for a node that is to have nothing, and by whom since when.
type Wished struct {
	To string    `json:"to,omitempty"`
	By string    `json:"by"`
	At time.Time `json:"at"`
}

// A Running is a handoff in the ledger.
type Running struct {
	Partition change.Partition `json:"partition"`
	From      string           `json:"from"`
	To        string           `json:"to"`
	Phase     ledger.Phase     `json:"phase"`
	Since     time.Time        `json:"since"`
	Cause     string           `json:"cause"`
	By        string           `json:"by"`
}

// A Recent is what became of handoffs that ended together.
type Recent struct {
	ledger.Digest

	At time.Time `json:"at"`
}

// mostRecent is how many partitions' handoffs are told.
const mostRecent = 100

// Look looks at a cluster.
func Look(ctx context.Context, c Cluster) (*List, error) {
	view, err := c.Roster.View(ctx)
	if err != nil {
		return nil, err
	}
	records, err := c.Ledger.List(ctx)
	if err != nil {
		return nil, err
	}
	notices, _, err := c.History.Read(ctx, 0)
	if err != nil {
		return nil, err
	}
	l := &List{Running: []Running{}, Recent: recent(notices), Pinned: map[string]Wished{}, Drained: map[string]Wished{}}
	for _, r := range records {
		l.Running = append(l.Running, Running{
			Partition: r.Partition, From: r.From.Node, To: r.To.Node, Phase: r.Phase, Since: r.Started, Cause: r.Cause, By: r.By,
		})
	}
	l.wishes(view.Wishes)
	return l, nil
}

func (l *List) wishes(w roster.Wishes) {
	for p, pin := range w.Pinned {
		l.Pinned[strconv.Itoa(int(p))] = Wished{To: pin.To, By: pin.By, At: pin.At}
	}
	for node, drain := range w.Drained {
		l.Drained[node] = Wished{By: drain.By, At: drain.At}
	}
}

// recent reads what the notices tell of handoffs, the newest first.
func recent(notices []notice.Notice) []Recent {
	all := []Recent{}
	notices = slices.DeleteFunc(slices.Clone(notices), func(n notice.Notice) bool { return n.Kind != notice.KindHandedOver })
	slices.SortStableFunc(notices, func(a, b notice.Notice) int { return b.At.Compare(a.At) })
	told := 0
	for _, n := range notices {
		var digests []ledger.Digest
		value, err := json.Marshal(n.Fields["handoffs"])
		if err != nil || json.Unmarshal(value, &digests) != nil {
			continue // of another version, or shortened
		}
		for _, d := range slices.Backward(digests) {
			if told >= mostRecent {
				return all
			}
			told += len(d.Partitions)
			all = append(all, Recent{Digest: d, At: n.At})
		}
	}
	return all
}

// Write writes the list for people.
func (l *List) Write(t *tabwriter.Writer) {
	if len(l.Running) == 0 {
		fmt.Fprintln(t, "Nothing moves.")
	} else {
		fmt.Fprintln(t, "PARTITION\tFROM\tTO\tPHASE\tSINCE\tCAUSE\tBY")
	}
	for _, r := range l.Running {
		fmt.Fprintf(t, "%d\t%s\t%s\t%s\t%s\t%s\t%s\n", r.Partition, r.From, r.To, r.Phase, stamp(r.Since), r.Cause, r.By)
	}
	if len(l.Pinned)+len(l.Drained) > 0 {
		fmt.Fprintln(t, "\nWISHED\tBY\tAT")
	}
	for _, node := range sorted(l.Drained) {
		fmt.Fprintf(t, "node %s has nothing\t%s\t%s\n", node, l.Drained[node].By, stamp(l.Drained[node].At))
	}
	for _, p := range sorted(l.Pinned) {
		fmt.Fprintf(t, "partition %s at %s\t%s\t%s\n", p, l.Pinned[p].To, l.Pinned[p].By, stamp(l.Pinned[p].At))
	}
	if len(l.Recent) == 0 {
		return
	}
	fmt.Fprintln(t, "\nENDED\tFROM\tTO\tPARTITIONS\tOUTCOME\tLONGEST\tCAUSE\tBY")
	for _, r := range l.Recent {
		outcome := r.Outcome
		if r.Why != "" {
			outcome += ": " + r.Why
		}
		fmt.Fprintf(t, "%s\t%s\t%s\t%s\t%s\t%d ms\t%s\t%s\n", stamp(r.At), r.From, r.To, numbers(r.Partitions), outcome, r.LongestMS, r.Cause, r.By)
	}
}

func stamp(t time.Time) string { return t.Local().Format("2006-01-02 15:04:05") }

// sorted returns the keys in their order, numbers by their size.
func sorted(m map[string]Wished) []string {
	keys := make([]string, 0, len(m))
	for key := range m {
		keys = append(keys, key)
	}
	slices.SortFunc(keys, func(a, b string) int {
		x, errX := strconv.Atoi(a)
		y, errY := strconv.Atoi(b)
		if errX == nil && errY == nil {
			return cmp.Compare(x, y)
		}
		return strings.Compare(a, b)
	})
	return keys
}

// numbers writes partitions shortly: 3, 7-9, 12.
func numbers(partitions []change.Partition) string {
	var text []string
	for i := 0; i < len(partitions); {
		j := i
		for j+1 < len(partitions) && partitions[j+1] == partitions[j]+1 {
			j++
		}
		switch j - i {
		case 0:
			text = append(text, fmt.Sprint(partitions[i]))
		default:
			text = append(text, fmt.Sprintf("%d-%d", partitions[i], partitions[j]))
		}
		i = j + 1
	}
	return strings.Join(text, ",")
}
