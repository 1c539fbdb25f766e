// Package config reads a YAML file and the environment into plain, checked values, and reports
// every error with its file and line.
//
// [Config] is the table of all keys: each field declares its key, default, form and bounds with
// tags.
//
//	LeaseTTL time.Duration `key:"lease_ttl" default:"10s" range:"2s.."`
//
//	key      the name of the key in its section; paths are joined with dots: cluster.lease_ttl
//	default  the default, as an operator would write it; a field without this tag is a section
//	range    the minimum and the maximum, "2s.." or "1..16384", for numbers, sizes and durations
//	one      the allowed words
//	check    a form that form.go defines, for texts and for the items of lists
//	secret   "yes": the value is never printed, and can be read from a file, whose path is set by the key with the suffix _file
//
// The Go type determines how a value is written: bool (true, false), int (a whole number), int64 (a
// size in bytes: 48MiB), time.Duration (10s), string, []string (a list), and every type with
// UnmarshalText. A text may be empty if its default is.
//
// To add a key, add its field to Config, its lines to config.yaml, and the test of its effect to
// configtest.Proofs; the tests compare the three.
// Rules about two keys are in conflict.go.
//
// # Sources
//
// The sources are the defaults, the file and the environment; the later one wins. The name of a
// variable is STREAMER_ and the path of the key in upper case with underscores,
// STREAMER_CLUSTER_LEASE_TTL; a list is written with commas. STREAMER_TEST_ is reserved for tests,
// STREAMER_CLIENT_, STREAMER_ADDRESS and STREAMER_CONTEXT for commands that call a node. Unknown
// keys and variables are refused, because a misspelt one would silently leave its default in force.
//
// # Errors
//
// [Load] reports all errors at once: those of the sources in the order in which they are read, then
// the conflicts. A value must be valid even if a later source overrides it. No error contains a
// secret. A [Secret] and a [URI] mask themselves wherever they are printed; string(x) is the text.
package config

//go:generate go test -run TestKeysAreDocumented -args -rewrite
