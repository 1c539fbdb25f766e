package main

import (
	"cmp"
	"fmt"
	"os"
	"runtime"
	"runtime/debug"
	"strings"
)

// A fact is a line of what a run took place on.
type fact struct{ name, value string }

// surroundings are the machine, the versions and the command, as far as they can be found out.
func (o options) surroundings() []fact {
	facts := []fact{
		{"CPU", fmt.Sprintf("%s, %d cores", line("/proc/cpuinfo", "model name"), runtime.NumCPU())},
		{"memory", line("/proc/meminfo", "MemTotal")},
		{"system", fmt.Sprintf("%s/%s %s", runtime.GOOS, runtime.GOARCH, strings.TrimSpace(file("/proc/sys/kernel/osrelease")))},
		{"Go", runtime.Version()},
	}
	if info, ok := debug.ReadBuildInfo(); ok {
		for _, dep := range info.Deps {
			switch dep.Path {
			case "go.mongodb.org/mongo-driver/v2", "go.etcd.io/etcd/client/v3", "go.etcd.io/etcd/server/v3":
				facts = append(facts, fact{dep.Path, dep.Version})
			}
		}
		facts = append(facts, fact{"commit", commit(info)})
	}
	server := "development MongoDB, serving from memory"
	if o.uri != "" {
		server = "the one of -uri"
	}
	return append(facts, fact{"MongoDB", server}, fact{"command", "`" + o.command + "`"})
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
