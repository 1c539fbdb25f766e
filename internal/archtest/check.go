package archtest

import (
	"fmt"
	"slices"
	"strings"
)

// matches reports whether a path fits a pattern: itself, or, if it ends in /..., the package and
// all below it.
func matches(pattern, path string) bool {
	base, below := strings.CutSuffix(pattern, "...")
	if !below {
		return pattern == path
	}
	base = strings.TrimSuffix(base, "/")
	return base == "" || path == base || strings.HasPrefix(path, base+"/")
}

func matchesAny(patterns []string, path string) bool {
	return slices.ContainsFunc(patterns, func(p string) bool { return matches(p, path) })
}

// ours returns the path within the module of an import of ours.
func ours(imported string) (string, bool) {
	if imported == Module {
		return ".", true
	}
	return strings.CutPrefix(imported, Module+"/")
}

// CheckImports holds the imports of ours against the rules.
func CheckImports(tree []Package) (broken []string) {
	helpers := map[string]bool{}
	for _, p := range tree {
		helpers[p.Path] = p.helper()
	}
	for _, p := range tree {
		i := slices.IndexFunc(rules(), func(r rule) bool { return matchesAny(r.pkgs, p.Path) })
		for _, f := range p.Files {
			for _, imported := range f.Imports {
				path, isOurs := ours(imported)
				switch {
				case !isOurs || f.Test:
				case helpers[path] && !p.helper():
					broken = append(broken, fmt.Sprintf("%s/%s: imports %s, which is for tests only", p.Path, f.Name, path))
				case i < 0, path == "fault" && p.Path != "fault":
				case !matchesAny(rules()[i].only, path):
					broken = append(broken, fmt.Sprintf("%s/%s: imports %s; it may import %v (%s)", p.Path, f.Name, path, rules()[i].only, rules()[i].why))
				}
			}
		}
	}
	return broken
}

// CheckLibraries holds the imports of outside modules against the table.
func CheckLibraries(tree []Package) (broken []string) {
	for _, p := range tree {
		for _, f := range p.Files {
			for _, imported := range f.Imports {
				first, _, _ := strings.Cut(imported, "/")
				if _, isOurs := ours(imported); isOurs || !strings.Contains(first, ".") {
					continue
				}
				i := slices.IndexFunc(libraries(), func(l library) bool { return matches(l.module+"/...", imported) })
				switch {
				case i < 0:
					broken = append(broken, fmt.Sprintf("%s/%s: %s is not in the table of libraries (internal/archtest/table.go)", p.Path, f.Name, imported))
				case f.Test || p.helper():
				case !matchesAny(libraries()[i].may, p.Path):
					l := libraries()[i]
					broken = append(broken, fmt.Sprintf("%s/%s: imports %s, which belongs in %v (%s)", p.Path, f.Name, imported, l.may, l.why))
				}
			}
		}
	}
	return broken
}

// CheckMetrics keeps Prometheus in metrics.go and the wiring; elsewhere a Config may name the
// Registerer.
func CheckMetrics(tree []Package) (broken []string) {
	for _, p := range tree {
		if matchesAny(wiring(), p.Path) || p.helper() {
			continue
		}
		for _, f := range p.Files {
			if f.Test || f.Name == "metrics.go" {
				continue
			}
			for _, imported := range f.Imports {
				if matches("github.com/prometheus/...", imported) && imported != prometheusPath {
					broken = append(broken, fmt.Sprintf("%s/%s: imports %s, which belongs in metrics.go or in the wiring", p.Path, f.Name, imported))
				}
			}
			for _, name := range f.Prometheus {
				if name != "Registerer" {
					broken = append(broken, fmt.Sprintf("%s/%s: prometheus.%s belongs in metrics.go", p.Path, f.Name, name))
				}
			}
		}
	}
	return broken
}

// CheckSleeps keeps tests from waiting for time to pass; in a bubble of testing/synctest none does.
func CheckSleeps(tree []Package) (broken []string) {
	for _, p := range tree {
		for _, f := range p.Files {
			if f.Test && f.Sleeps && !slices.Contains(f.Imports, "testing/synctest") {
				broken = append(broken, fmt.Sprintf("%s/%s: sleeps outside a bubble of testing/synctest; wait for an event", p.Path, f.Name))
			}
		}
	}
	return broken
}

// CheckLeaks has leaktest alone look for goroutines that are left.
func CheckLeaks(tree []Package) (broken []string) {
	for _, p := range tree {
		for _, f := range p.Files {
			if p.Path != "internal/leaktest" && slices.Contains(f.Imports, "go.uber.org/goleak") {
				broken = append(broken, fmt.Sprintf("%s/%s: imports goleak, which waits for half a second; use internal/leaktest", p.Path, f.Name))
			}
		}
	}
	return broken
}

// CheckShape holds names, init functions, main.go and doc.go against the house style.
func CheckShape(tree []Package) (broken []string) {
	complain := func(format string, args ...any) { broken = append(broken, fmt.Sprintf(format, args...)) }
	for _, p := range tree {
		doc := false
		for _, f := range p.Files {
			if f.Inits && !f.Generated {
				complain("%s/%s: has an init(); what it does belongs in a New or in the wiring", p.Path, f.Name)
			}
			if f.Test || f.Generated {
				continue
			}
			limit := f.Lines
			switch {
			case f.Name == "doc.go":
				doc = true
				limit = maxDoc
			case f.Name == "main.go" && p.Name == "main":
				limit = maxMain
			}
			if f.Lines > limit {
				complain("%s/%s: %d lines, at most %d", p.Path, f.Name, f.Lines, limit)
			}
		}
		if !doc {
			complain("%s: has no doc.go", p.Path)
		}
		if slices.Contains(emptyNames(), p.Name) {
			complain("%s: the name %s says nothing about what is inside", p.Path, p.Name)
		}
	}
	return broken
}
