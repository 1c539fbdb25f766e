package machine

import (
	"cmp"
	"fmt"
	"os"
	"runtime"
	"runtime/debug"
	"strings"
)

// A Fact is a line of what a run took place on.
type Fact struct{ Name, Value string }

// Facts are the machine and the versions, as far as they can be found out.
func Facts() []Fact {
	facts := []Fact{
		{"CPU", fmt.Sprintf("%s, %d cores", line("/proc/cpuinfo", "model name"), runtime.NumCPU())},
		{"memory", line("/proc/meminfo", "MemTotal")},
		{"system", fmt.Sprintf("%s/%s %s", runtime.GOOS, runtime.GOARCH, strings.TrimSpace(file("/proc/sys/kernel/osrelease")))},
		{"Go", runtime.Version()},
	}
	if info, ok := debug.ReadBuildInfo(); ok {
		for _, dep := range info.Deps {
			switch dep.Path {
			case "go.mongodb.org/mongo-driver/v2", "go.etcd.io/etcd/client/v3", "go.etcd.io/etcd/server/v3":
				facts = append(facts, Fact{dep.Path, dep.Version})
			}
		}
		facts = append(facts, Fact{"commit", commit(info)})
	}
	return facts
}

// commit is what the program was built from, where the build noted it.
func commit(info *debug.BuildInfo) string {
	settings := make(map[string]string)
	for _, s := range info.Settings {
		settings[s.Key] = s.Value
	}
	revision := cmp.Or(settings["vcs.revision"], "unknown")
	if settings["vcs.modified"] == "true" {
		revision += ", with changes"
	}
	return revision
}

// line returns the value of the first line of a file of names and values.
func line(path, name string) string {
	for l := range strings.Lines(file(path)) {
		if key, value, ok := strings.Cut(l, ":"); ok && strings.TrimSpace(key) == name {
			return strings.TrimSpace(value)
		}
	}
	return "unknown"
}

func file(path string) string {
	text, err := os.ReadFile(path)
	if err != nil {
		return "unknown"
	}
	return string(text)
}
