package process

import (
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"

	"github.com/mongostream/streamer/fault"
)

// changing are the commands that change what a cluster keeps, with what they are given beside what
// each test knows: every partition, a start for START, an archive for ARCHIVE, the node that owns
// partition 0 for OWNER and another one for OTHER.
func changing() map[string][][]string {
	return map[string][][]string{
		"subscribers rewind": {
			{printer, "--to", "START"}, {printer, "--partition", "3", "--to", "START"}, {printer, "--partition", "3", "--to", "START", "-o", "json"},
		},
		"subscribers import":       {{"ARCHIVE"}, {"ARCHIVE", "-o", "json"}},
		"subscribers delete":       {{printer}, {printer, "-o", "json"}},
		"cluster repartition":      {{"--to", "24"}, {"--to", "24", "-o", "json"}},
		"cluster adopt":            {{}, {"-o", "json"}},
		"handoff":                  {{"0", "--to", "OTHER"}, {"0", "--to", "OTHER", "-o", "json"}},
		"supervisor set":           {{"--missed-heartbeats-to-alert", "4"}, {"--missed-heartbeats-to-alert", "4", "-o", "json"}},
		"supervisor pause-restart": {{"--slug", "OWNER"}, {"--slug", "OWNER", "-o", "json"}},
		"drain":                    {{"OWNER"}, {"OWNER", "-o", "json"}},
		"snapshot":                 {{printer}, {printer, "cancel", "-o", "json"}},
		"replay":                   {{"--sink", printer, "--from", "START"}, {"--sink", printer, "--from", "START", "-o", "json"}},
		"sinks pause":              {{"orders"}, {"orders", "-o", "json"}},
		"sinks resume":             {{"orders"}, {"orders", "-o", "json"}},
		"retention forget":         {{"--store", "STORE", "--namespace", "shop.orders", "--before", "now"}},
		"retention prune":          {{"--store", "STORE"}, {"--store", "STORE", "-o", "json"}},
	}
}

// harmless are those that change nothing, or nothing but a new file that they are told to write;
// and run, which is a node.
func harmless() []string {
	return []string{
		"audit", "check", "subscribers export", "subscribers history", "subscribers list", "subscribers show", "config check", "config init", "config show", "context add", "context list", "context remove", "context use", "explain", "gaps", "history", "retention list", "retention show", "retention verify", "run",
		"sinks status", "status", "supervisor reports", "supervisor status", "tail", "version",
	}
}

// leaves returns the commands below one that have none below them, as their help tells them, and
// which of those know --yes.
func leaves(t *testing.T, path ...string) (all map[string]bool) {
	t.Helper()
	_, help := command(t, append(slices.Clone(path), "--help")...)
	all = map[string]bool{}
	below := false // within the list of a group of commands
	for line := range strings.Lines(help) {
		name, _, _ := strings.Cut(strings.TrimSpace(line), " ")
		switch title := strings.TrimSpace(line); {
		case slices.Contains([]string{"Available Commands:", "Run a node:", "Look:", "Operate:", "Additional Commands:"}, title):
			below = true
		case name == "":
			below = false
		case below && name != "help" && name != "completion":
			maps.Copy(all, leaves(t, append(slices.Clone(path), name)...))
		}
	}
	if len(all) == 0 {
		return map[string]bool{strings.Join(path, " "): strings.Contains(help, "--yes")}
	}
	return all
}

// Every command is one that changes data, and asks, or one that does not.
func TestCommandsThatChangeDataKnowYes(t *testing.T) {
	t.Parallel()
	all := leaves(t)
	var changes []string
	for path, yes := range all {
		if yes {
			changes = append(changes, path)
		}
	}
	slices.Sort(changes)
	if want := slices.Sorted(maps.Keys(changing())); !slices.Equal(changes, want) {
		t.Errorf("%q know --yes, %q change data", changes, want)
	}
	known := slices.Sorted(slices.Values(append(slices.Collect(maps.Keys(changing())), harmless()...)))
	if there := slices.Sorted(maps.Keys(all)); !slices.Equal(there, known) {
		t.Errorf("there are the commands %q; these are looked at: %q", there, known)
	}
}

// Without a terminal and without --yes no command changes anything: on marks at rest, and beside
// nodes that run.
func TestNothingIsChangedUnasked(t *testing.T) {
	t.Parallel()
	for _, backend := range backends() {
		t.Run(backend, func(t *testing.T) {
			t.Parallel()
			f := newFleet(t, backend, 2, unhurried)
			f.begin()
			stop := f.write(500)
			until(t, "every partition has a mark at an event", func() bool {
				marked := 0
				for _, m := range f.lab.stored() {
					if !m.Position.IsProgress() {
						marked++
					}
				}
				return marked == partitions
			})
			stop()
			owner, other := f.view().Owners[0].Node, ""
			for _, s := range f.ships {
				if s.name != owner {
					other = s.name
				}
			}
			unasked(t, f, strings.NewReplacer("START", f.lab.list().Origin.Start.target(), "OWNER", owner, "OTHER", other), "handoff", "drain", "supervisor set", "supervisor pause-restart",
				"snapshot", "sinks pause", "sinks resume")
			f.lab.result("drain", owner, "--yes")
			f.lab.operate("drain", owner, "--undo").refused(fault.CommandUnconfirmed, "terminal")
			if len(f.view().Directives.Drained) != 1 {
				t.Error("a drain was taken back unasked")
			}
			for _, s := range f.ships {
				s.signal(syscall.SIGTERM)
			}
			for _, s := range f.ships {
				s.wait()
			}
			archive := filepath.Join(t.TempDir(), "marks.json")
			f.lab.result("subscribers", "export", archive)
			before := f.lab.store.everything()
			retained := t.TempDir()
			if err := os.MkdirAll(filepath.Join(retained, "v1", "source", "1", "seg"), 0o700); err != nil {
				t.Fatal(err)
			}
			with := strings.NewReplacer("START", f.lab.list().Origin.Start.target(), "ARCHIVE", archive, "STORE", "file://"+retained)
			unasked(t, f, with, "subscribers rewind", "replay", "subscribers import", "subscribers delete", "cluster repartition", "cluster adopt", "retention prune", "retention forget")
			unchanged(t, before, f.lab.store.everything())
			if _, err := os.Stat(archive); err != nil {
				t.Error(err)
			}
		})
	}
}

// unasked gives commands without --yes.
func unasked(t *testing.T, f *fleet, with *strings.Replacer, commands ...string) {
	t.Helper()
	for _, path := range commands {
		for _, args := range changing()[path] {
			given := strings.Fields(path)
			for _, arg := range args {
				given = append(given, with.Replace(arg))
			}
			f.lab.operate(given...).refused(fault.CommandUnconfirmed, "terminal")
		}
	}
	if w := f.view().Directives; len(w.Pinned)+len(w.Drained) > 0 && slices.Contains(commands, "handoff") {
		t.Errorf("wished unasked: %+v", w)
	}
}
