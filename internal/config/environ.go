package config

import (
	"maps"
	"slices"
	"strings"

	"github.com/mongostream/streamer/fault"
)

// ForNodes reports whether a variable, NAME=value or its name alone, configures nodes: those of
// tests and of commands that ask a node do not.
func ForNodes(variable string) bool {
	name, _, _ := strings.Cut(variable, "=")
	return forNodes(envPrefix, name)
}

func forNodes(prefix, name string) bool {
	rest, ours := strings.CutPrefix(name, prefix)
	return ours && rest != "ADDRESS" && rest != "CONTEXT" && !strings.HasPrefix(rest, "TEST_") && !strings.HasPrefix(rest, "CLIENT_")
}

// environ takes the settings of the environment, as os.Environ returns it, in the order of the
// names that begin with prefix, except those that belong to tests and to commands.
func (t *table) environ(prefix string, environ []string) {
	known := map[string]key{}
	for _, k := range t.keys {
		known[k.variable(prefix)] = k
	}
	vars := map[string]string{} // of a repeated name the last counts, as for os/exec
	for _, entry := range environ {
		name, text, _ := strings.Cut(entry, "=")
		if forNodes(prefix, name) {
			vars[name] = text
		}
	}
	seen := map[string]string{}
	for _, name := range slices.Sorted(maps.Keys(vars)) {
		k, ok := known[name]
		if !ok {
			t.complain(fault.ConfigUnknownKey, name, "no key has this variable%s", hint(name, slices.Collect(maps.Keys(known))))
			continue
		}
		v := value{where: name, text: vars[name]}
		if _, v.isList = k.list(); v.isList {
			for _, item := range splitList(v.text) {
				v.items = append(v.items, value{where: name, text: item})
			}
		}
		t.apply(seen, k, v)
	}
}

// variable returns the name of the variable that sets the key.
func (k key) variable(prefix string) string {
	return prefix + strings.ToUpper(strings.NewReplacer(".", "_", "[", "_", "]", "").Replace(k.path))
}

// hint returns the possible origin of an unknown variable.
func hint(name string, known []string) string {
	const link = ": Kubernetes sets it for a Service of that name; set enableServiceLinks: false in the pod"
	if strings.HasSuffix(name, "_SERVICE_HOST") || strings.Contains(name, "_SERVICE_PORT") || strings.Contains(name+"_", "_PORT_") {
		return link
	}
	return Suggestion(name, known)
}

// splitList splits a list written with commas; an empty text is an empty list.
func splitList(text string) []string {
	if strings.TrimSpace(text) == "" {
		return nil
	}
	items := strings.Split(text, ",")
	for i, item := range items {
		items[i] = strings.TrimSpace(item)
	}
	return items
}
