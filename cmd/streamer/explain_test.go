package main

import (
	"bytes"
	"strings"
	"testing"
)

func TestExplainAndVersionHaveTheOutputOfOtherCommands(t *testing.T) {
	for line, want := range map[string]string{
		"version -o json":                               "{\n  \"version\": \"" + versionText() + "\"\n}\n",
		"explain access-open -o json":                   "{\n  \"code\": \"STRM-ACCESS-OPEN\",\n",
		"__complete version -o j":                       "json\n:4\n",
		"__complete explain STRM-ACCESS-OPEN --output ": "json\n:4\n",
	} {
		var out bytes.Buffer
		root := command()
		root.SetOut(&out)
		root.SetErr(&bytes.Buffer{})
		root.SetArgs(strings.Split(line, " "))
		if err := root.ExecuteContext(t.Context()); err != nil || !strings.HasPrefix(out.String(), want) {
			t.Errorf("%s: %q, want %q (%v)", line, out.String(), want, err)
		}
	}
}
