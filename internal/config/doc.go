// Package config turns a YAML file and the environment into plain, checked values, and says with file and line what is wrong.
//
// [Config] is the table of all keys: each field declares its key, default, form and bounds with the tags of package table,
// which fills it. The forms that only one key has are in form.go, what two keys can contradict each other in is in
// conflict.go. To add a key, add its field here and its line to config.yaml; the tests hold the two together.
//
// Sources are the defaults, the file and the environment; the later one wins. A variable is called STREAMER_ and the path of
// the key in upper case with underscores, STREAMER_CLUSTER_LEASE_TTL; a list is written with commas. STREAMER_TEST_ belongs
// to the tests, STREAMER_CLIENT_ to commands that ask a node. Unknown keys and variables are refused, and everything that is wrong is told at once.
//
// Secrets appear in no complaint. A [Secret] and a [URI] mask themselves wherever they are printed; string(x) is the text.
package config
