// Package table fills a struct from defaults, a YAML file and the environment, strictly, and gathers what is wrong.
//
// The struct is the table: each field declares its key, its default, its form and its bounds in one place.
//
//	LeaseTTL time.Duration `key:"lease_ttl" default:"10s" range:"2s.."`
//
// The tags are
//
//	key      the key's name in its section; paths are joined with dots: cluster.lease_ttl
//	default  the value where nobody sets one, written as an operator would; a field without this tag is a section
//	range    the least and the greatest value, "2s.." or "1..16384", for numbers, sizes and durations
//	one      the allowed words
//	check    a form that the table's maker defines, for texts and for the items of lists
//	secret   "yes": the value is never shown, and can be had from a file, whose path stands under the key with _file behind it
//
// The Go type says how a value is written: bool (true, false), int (a whole number), int64 (a size in bytes: 48MiB),
// time.Duration (10s), string, []string (a list), and whatever has UnmarshalText. A text may be empty where the default is.
//
// # Sources
//
// The later source wins: [Table.Default], [Table.File], [Table.Environ]. A variable is called by the prefix and the path in
// upper case with underscores, STREAMER_CLUSTER_LEASE_TTL; a list is written with commas. Variables of the prefix and TEST_
// belong to the tests, those of the prefix and CLIENT_ to commands that ask a node. Whatever else begins with the prefix is refused, as is a key that the table does not have: a misspelt
// one would silently leave its default in force.
//
// # Complaints
//
// [Table.Err] tells everything at once, as fault errors joined, each with file and line or variable: the sources in the order
// in which they were read, then the contradictions. What a later source overrides must be right all the same.
package table
